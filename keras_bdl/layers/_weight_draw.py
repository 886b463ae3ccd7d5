"""One draw of all weights of a layer, and the draw of one forward pass."""

import dataclasses
import functools
from typing import Any

import numpy as np
from keras import ops

from keras_bdl._random import _noise as forward_pass_noise
from keras_bdl.layers import _estimators as estimators
from keras_bdl.priors import Normal

# Streams of random numbers of one seed.
WEIGHTS = 0
NUMBERED_DRAWS = 1
KL = 2
INPUT_SIGNS = 3
OUTPUT_SIGNS = 4
OUTPUTS = 5


def normals(posteriors, seed, stream=WEIGHTS, bound=1.0):
    """Returns the normal numbers that make the noise of all tensors.

    Args:
        posteriors: The `WeightPosterior` of each tensor.
        seed: Seed of all numbers of the draw.
        stream: The stream of numbers. Defaults to `WEIGHTS`.
        bound: Bound of the uniform numbers from which the normal numbers are
            computed, between 0 and 1. Defaults to `1.0`: no truncation.
    """
    size = sum(p.num_normals for p in posteriors)
    return forward_pass_noise.normal((size,), seed, stream, bound)


def noise(posteriors, numbers):
    """Returns the noise of each tensor, by name, made from `normals`."""
    by_name, start = {}, 0
    for p in posteriors:
        part = numbers[start : start + p.num_normals]
        by_name[p.name] = p.family.noise(part, p.shape)
        start += p.num_normals
    return by_name


def host_noise(posteriors, seed, bound):
    """Returns the noise of each tensor, by name, drawn outside of graphs.

    Args:
        posteriors: The `WeightPosterior` of each tensor.
        seed: Selects the draw; any integer from 0 on.
        bound: Bound of the uniform numbers that make the noise.
    """
    size = sum(p.num_normals for p in posteriors)
    bits = np.random.default_rng(seed).integers(-(2**31), 2**31, size, "int32")
    uniforms = forward_pass_noise.of_bits(bits) * bound
    return noise(posteriors, forward_pass_noise.gaussian_noise(uniforms))


def numbered_draw(layer, number):
    """Returns the draw with this number, the same on all replicas.

    Args:
        layer: A variational layer that is built.
        number: Number of the draw, counted from 0.
    """
    start = layer.seed_generator.state[0]
    seed = ops.stack([start, ops.cast(number, start.dtype)])
    posteriors, bound = layer.weight_posteriors, layer.noise_bound
    return Draw(
        posteriors,
        [p.read() for p in posteriors],
        functools.partial(
            normals, posteriors, seed, NUMBERED_DRAWS, bound=bound
        ),
    )


def numbers_of(layer, seed):
    """Returns the random numbers of a draw, or `None` for `"local"`.

    Args:
        layer: A variational layer.
        seed: Seed of all numbers of the draw.
    """
    if layer.estimator == "local":
        return None
    bound = layer.noise_bound
    return normals(layer.weight_posteriors, seed, bound=bound)


def results_of(layer, tensors, numbers, seed, annealed):
    """Returns the part of a draw that the estimator needs, and KL(q || p).

    Args:
        layer: A variational layer.
        tensors: The tensors that each of its `weight_posteriors` read.
        numbers: The numbers that `numbers_of` returned.
        seed: Seed of all numbers of the draw.
        annealed: Factor of the noise in the weights.
    """
    posteriors, kl_numbers = layer.weight_posteriors, None
    if layer.estimator == "local" or layer.noise_bound < 1:
        kl_numbers = functools.partial(normals, posteriors, seed, KL)
    draw = Draw(
        posteriors,
        tensors,
        lambda: numbers,
        kl_numbers=kl_numbers,
        annealed=annealed,
    )
    return getattr(
        draw, estimators.DRAWN[layer.estimator]
    ), draw.kl_divergence()


def constants_of(layer):
    """Returns all that a draw reads of the layer but its tensors, hashable.

    Layers with equal constants share the trace of their draws.

    Args:
        layer: A variational layer.
    """
    posteriors = layer.weight_posteriors
    return (
        layer.estimator,
        layer.noise_bound,
        *((p.name, p.family, p.shape, _values_of(p.prior)) for p in posteriors),
    )


def _values_of(prior):
    """Returns the same for two priors only if they are the same function."""
    if type(prior) is Normal:  # the default, an object for each layer
        return Normal, prior.mean, prior.stddev
    return id(prior)


class Draw:
    """One draw of the weights of a layer.

    Each property is computed when it is read. The noise is computed once.

    Args:
        posteriors: The `WeightPosterior` of each tensor.
        tensors: For each posterior, the tensors that its method `read`
            returns.
        numbers: A function that returns the `normals` of the weights.
        kl_numbers: A function that returns other `normals`, for a KL without
            a closed form. Defaults to `None`: the KL uses the numbers of the
            weights.
        annealed: Factor of the noise in the weights. Defaults to `1.0`.
    """

    def __init__(
        self, posteriors, tensors, numbers, *, kl_numbers=None, annealed=1.0
    ):
        self._posteriors = dict(zip(posteriors, tensors, strict=True))
        self._numbers = numbers
        self._kl_numbers = kl_numbers
        self._annealed = annealed

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
        """The drawn weights minus their means, by name."""
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
        return noise(self._posteriors, self._numbers())

    @functools.cached_property
    def _kl_noise(self):
        if self._kl_numbers is None:
            return self._noise
        return noise(self._posteriors, self._kl_numbers())

    def _kl_noise_of(self, name):
        return self._kl_noise[name]


@dataclasses.dataclass(kw_only=True)
class ForwardPass:
    """One draw of a layer, and the loss that it added.

    Attributes:
        means: The means of the weights, by name.
        drawn: The drawn tensors of the estimator, by name: the weights, their
            perturbations, or their variances.
        seed: Seed of the signs of flipout and of the noise of outputs.
        kl_per_example: KL(q || p) / N.
        loss: The annealed KL(q || p) / N. The loss stays in `losses` as long as
            the forward pass lasts.
        calls: Number of calls that have drawn noise of outputs.
        sign_streams: Streams of the signs of inputs and of outputs, the same
            for all calls.
    """

    means: dict
    drawn: dict
    seed: Any
    kl_per_example: Any
    loss: Any
    calls: int = 0
    sign_streams = INPUT_SIGNS, OUTPUT_SIGNS

    def next_stream(self):
        """Returns the stream of the noise of the outputs, new at each call."""
        self.calls += 1
        return OUTPUTS + self.calls
