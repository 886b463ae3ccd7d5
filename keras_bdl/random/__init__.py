"""Random numbers: of counters, of replicas, and for all weights at once.

Distributions with parameters are in `keras_bdl.distributions` and
`keras_bdl.priors`.
"""

__all__ = []
