"""One draw of all weights of a layer, and the draw of one forward pass."""

import dataclasses
import functools
from typing import Any

import numpy as np
from keras import ops

from keras_bdl.layers import estimators
from keras_bdl.random import forward_pass_noise

# One seed has several streams of random numbers.
WEIGHTS = 0
KL = 1
INPUT_SIGNS = 2
OUTPUT_SIGNS = 3
OUTPUTS = 4


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
    seed = forward_pass_noise.fold_in(seed, stream)
    return forward_pass_noise.normal((size,), seed, bound)


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
        functools.partial(normals, posteriors, seed, bound=bound),
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
    """

    means: dict
    drawn: dict
    seed: Any
    kl_per_example: Any
    loss: Any
    calls: int = 0

    def sign_seeds(self):
        """Returns seeds for inputs and outputs, the same for all calls."""
        return [
            forward_pass_noise.fold_in(self.seed, stream)
            for stream in (INPUT_SIGNS, OUTPUT_SIGNS)
        ]

    def output_seed(self):
        """Returns a seed for the noise of the outputs, new at each call."""
        self.calls += 1
        return forward_pass_noise.fold_in(self.seed, OUTPUTS + self.calls)
