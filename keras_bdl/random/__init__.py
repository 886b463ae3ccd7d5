"""Random numbers as functions of a seed, a step, a replica and a sample.

`keyed_noise` makes the noise of samplers, `forward_pass_noise` the noise of a
forward pass, and `gaussian_weights` samples of all weights at once.
`keras_bdl.distributions` and `keras_bdl.priors` hold distributions with
parameters.
"""

__all__ = []
