"""Random numbers as functions of a seed, a step, a replica and a sample.

`keyed_noise` makes the random bits of samplers, and `forward_pass_noise` makes
the noise of a forward pass. `gaussian_weights` draws all weights at once.
`keras_bdl.distributions` and `keras_bdl.priors` hold distributions with
parameters.
"""

__all__ = []
