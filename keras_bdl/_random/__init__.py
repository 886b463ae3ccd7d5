"""Random numbers as functions of a seed, a step, a replica and a sample.

`keras_bdl.distributions` and `keras_bdl.priors` hold distributions with
parameters.
"""

__all__ = []
