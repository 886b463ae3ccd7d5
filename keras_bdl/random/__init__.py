"""Random numbers as functions of a seed, a step, a replica and a sample.

`counter_numbers` makes the noise of samplers, `replica_numbers` the noise of a
forward pass, and `weight_noise` samples of all weights at once.
`keras_bdl.distributions` and `keras_bdl.priors` hold distributions with
parameters.
"""

__all__ = []
