"""A draw of all weights of a layer."""

import functools

from keras_bdl.layers import random_numbers

# The streams of random numbers of one seed.
WEIGHTS = 0
KL = 1
INPUT_SIGNS = 2
OUTPUT_SIGNS = 3
OUTPUTS = 4


class Draw:
    """What a draw of the weights is made of.

    Nothing is computed before it is asked for, and nothing twice.

    Args:
        posteriors: The `WeightPosterior` of each tensor.
        tensors: What each of them read from its variables.
        seed: Seed of all numbers.
        bound: Bound of the uniform numbers that make the noise. Defaults to
            `1.0`.
        annealed: Factor of the noise in the weights. Defaults to `1.0`.
        own_noise: Whether a sampled KL takes the noise of the weights, and
            not noise of its own. Defaults to `True`.
    """

    def __init__(
        self, posteriors, tensors, seed, bound=1.0, annealed=1.0, own_noise=True
    ):
        self._posteriors = dict(zip(posteriors, tensors, strict=True))
        self._seed = seed
        self._bound = bound
        self._annealed = annealed
        self._own_noise = own_noise

    @functools.cached_property
    def distributions(self):
        """The distributions of the tensors, by name."""
        return {p.name: p.distribution(t) for p, t in self._posteriors.items()}

    @property
    def weights(self):
        """The drawn weights, by name."""
        return {
            name: q.draw(self._annealed * self._noise[name])
            for name, q in self.distributions.items()
        }

    @property
    def perturbations(self):
        """The drawn weights less their means, by name."""
        return {
            name: q.perturbation(self._annealed * self._noise[name])
            for name, q in self.distributions.items()
        }

    @property
    def variances(self):
        """The variances of the weights, by name."""
        factor = self._annealed**2
        return {
            name: factor * q.variance for name, q in self.distributions.items()
        }

    def kl_divergence(self):
        """Returns KL(q || p) of all tensors, in nats."""
        return sum(
            self.distributions[p.name].kl_divergence(
                p.prior_distribution(tensors),
                functools.partial(self._kl_noise_of, p.name),
            )
            for p, tensors in self._posteriors.items()
        )

    @functools.cached_property
    def _noise(self):
        return self._draw_noise(WEIGHTS, self._bound)

    @functools.cached_property
    def _kl_noise(self):
        return self._noise if self._own_noise else self._draw_noise(KL, 1.0)

    def _kl_noise_of(self, name):
        return self._kl_noise[name]

    def _draw_noise(self, stream, bound):
        size = sum(p.num_uniforms for p in self._posteriors)
        seed = random_numbers.fold_in(self._seed, stream)
        uniforms = random_numbers.uniform((size,), seed)
        return split_noise(self._posteriors, uniforms * bound)


def split_noise(posteriors, uniforms):
    """Returns the noise of each tensor, by name, out of one draw for all."""
    noise, start = {}, 0
    for p in posteriors:
        part = uniforms[start : start + p.num_uniforms]
        noise[p.name] = p.family.noise(part, p.shape)
        start += p.num_uniforms
    return noise
