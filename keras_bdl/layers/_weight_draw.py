"""One draw of all weights of a variational layer."""

import dataclasses
import functools
import math
from collections.abc import Callable
from collections.abc import Hashable
from collections.abc import Iterable
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_bdl._aliases import ArrayLike
from keras_bdl._backend import compiled
from keras_bdl._backend import tensor
from keras_bdl._random import _noise as forward_pass_noise
from keras_bdl.distributions._weight_distribution import WeightDistribution
from keras_bdl.priors import Normal

# Streams of random numbers of one seed.
WEIGHTS = 0
NUMBERED_DRAWS = 1
KL = 2
INPUT_SIGNS = 3
OUTPUT_SIGNS = 4
OUTPUTS = 5


# The property of a `Draw` that an estimator needs.
DRAWN = {"weight": "weights", "flipout": "perturbations", "local": "variances"}


class WeightPosterior:
    """The variables of the distribution of one tensor, and its prior.

    `name` is `"kernel"`, `"embeddings"` or `"bias"`, `rho` holds
    `softplus^-1(stddev)`, and `prior` is a result of `get_prior` or a
    `StoredPrior`, whose mean and scale are the variables `stored`.
    """

    def __init__(
        self,
        name: str,
        family: type[WeightDistribution],
        mean: keras.Variable,
        rho: keras.Variable,
    ):
        self.name = name
        self.family = family
        self.mean = mean
        self.rho = rho
        self.prior: Any = None
        self.stored: Any = ()
        self.shape = tuple(mean.shape)
        self.num_normals = family.num_normals(math.prod(self.shape))

    def read(self) -> list[ArrayLike]:
        """Returns the tensors that all variables hold now."""
        variables = (self.mean, self.rho, *self.stored)
        return [tensor(v) for v in variables]

    def distribution(
        self, tensors: list[ArrayLike] | None = None
    ) -> WeightDistribution:
        """Returns the distribution with the tensors that `read` returns."""
        mean, rho, *_ = tensors or self.read()
        return distribution_of(self.family, self.shape, mean, rho)

    def prior_distribution(self, tensors: list[ArrayLike]) -> Any:
        """Returns the prior with the tensors that `read` returns."""
        _, _, *stored = tensors
        return self.prior.distribution(*stored) if stored else self.prior


def distribution_of(
    family: type[WeightDistribution], shape: tuple, mean: Any, rho: Any
) -> WeightDistribution:
    """Returns the distribution whose weights have the deviation softplus(rho).

    The scale of a Radial tensor grows with its size: as a variable, the scale
    would need steps of this size.
    """
    return family(mean, ops.softplus(rho) / family.width(math.prod(shape)))


def normals(
    posteriors: Iterable[WeightPosterior],
    seed: Any,
    stream: int = WEIGHTS,
    bound: float = 1.0,
) -> ArrayLike:
    """Returns the normal numbers that make the noise of all tensors.

    A `bound` below 1 of the uniform numbers behind them truncates the numbers.
    """
    size = sum(p.num_normals for p in posteriors)
    return forward_pass_noise.normal((size,), seed, stream, bound)


def noise(
    posteriors: Iterable[WeightPosterior], numbers: ArrayLike
) -> dict[str, ArrayLike]:
    """Returns the noise of each tensor, by name, made from `normals`."""
    by_name, start = {}, 0
    for p in posteriors:
        part = numbers[start : start + p.num_normals]
        by_name[p.name] = p.family.noise(part, p.shape)
        start += p.num_normals
    return by_name


def host_draws(
    posteriors: tuple[WeightPosterior, ...], seed: int, bound: float
) -> list[ArrayLike]:
    """Returns a draw of each tensor, with random bits from outside of graphs.

    The rest is one compiled program for all layers of one kind and size.
    """
    size = sum(p.num_normals for p in posteriors)
    bits = np.random.default_rng(seed).integers(-(2**31), 2**31, size, "int32")
    tensors = [p.read()[:2] for p in posteriors]
    kinds = tuple((p.family, p.shape) for p in posteriors)
    return _program(kinds, bound)(tensors, bits)


@functools.lru_cache(maxsize=256)
def _program(kinds: tuple, bound: float) -> Callable:
    """Returns the compiled function of means, rhos and random bits."""

    def draws(tensors: list, bits: Any) -> list[ArrayLike]:
        uniforms = forward_pass_noise.of_bits(bits) * bound
        numbers = forward_pass_noise.gaussian_noise(uniforms)
        found, start = [], 0
        for (family, shape), (mean, rho) in zip(kinds, tensors, strict=True):
            end = start + family.num_normals(math.prod(shape))
            noise = family.noise(numbers[start:end], shape)
            found.append(distribution_of(family, shape, mean, rho).draw(noise))
            start = end
        return found

    return compiled(draws)


def numbers_of(layer: Any, seed: Any) -> ArrayLike | None:
    """Returns the random numbers of a draw, or `None` for `"local"`."""
    if layer.estimator == "local":
        return None
    bound = layer.noise_bound
    return normals(layer.weight_posteriors, seed, bound=bound)


def results_of(
    layer: Any, tensors: list, numbers: ArrayLike, seed: Any, annealed: Any
) -> tuple[dict[str, ArrayLike], ArrayLike]:
    """Returns the part of a draw that the estimator needs, and KL(q || p).

    `tensors` are those that each of the `weight_posteriors` read, `numbers` the
    result of `numbers_of`, and `annealed` is a factor of the noise.
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
    return getattr(draw, DRAWN[layer.estimator]), draw.kl_divergence()


def constants_of(layer: Any) -> tuple[Hashable, ...]:
    """Returns all that a draw reads of the layer but its tensors, hashable.

    Layers with equal constants share the trace of their draws.
    """
    posteriors = layer.weight_posteriors
    return (
        layer.estimator,
        layer.noise_bound,
        *((p.name, p.family, p.shape, _values_of(p.prior)) for p in posteriors),
    )


def _values_of(prior: Any) -> Hashable:
    """Returns the same for two priors only if they are the same function."""
    if type(prior) is Normal:  # the default, an object for each layer
        return Normal, prior.mean, prior.stddev
    return id(prior)


class Draw:
    """One draw of the weights of a layer; each property computes when read.

    `numbers` returns the `normals` of the weights, and `kl_numbers` others for
    a KL without a closed form, unless that uses the same.
    """

    def __init__(
        self,
        posteriors: tuple[WeightPosterior, ...],
        tensors: list,
        numbers: Callable[[], Any],
        *,
        kl_numbers: Callable[[], Any] | None = None,
        annealed: Any = 1.0,
    ):
        self._posteriors = dict(zip(posteriors, tensors, strict=True))
        self._numbers = numbers
        self._kl_numbers = kl_numbers
        self._annealed = annealed

    @functools.cached_property
    def distributions(self) -> dict[str, WeightDistribution]:
        """The distributions of the tensors, by name."""
        return {p.name: p.distribution(t) for p, t in self._posteriors.items()}

    @property
    def weights(self) -> dict[str, ArrayLike]:
        """The drawn weights, by name."""
        return {
            name: q.draw(self._annealed * self._noise[name])
            for name, q in self.distributions.items()
        }

    @property
    def perturbations(self) -> dict[str, ArrayLike]:
        """The drawn weights minus their means, by name."""
        return {
            name: q.perturbation(self._annealed * self._noise[name])
            for name, q in self.distributions.items()
        }

    @property
    def variances(self) -> dict[str, ArrayLike]:
        """The variances of the weights, by name."""
        factor = self._annealed**2
        return {
            name: factor * q.variance for name, q in self.distributions.items()
        }

    def kl_divergence(self) -> ArrayLike:
        """Returns KL(q || p) of all tensors, in nats."""
        return sum(
            self.distributions[p.name].kl_divergence(
                p.prior_distribution(tensors),
                functools.partial(self._kl_noise_of, p.name),
            )
            for p, tensors in self._posteriors.items()
        )

    @functools.cached_property
    def _noise(self) -> dict[str, ArrayLike]:
        return noise(self._posteriors, self._numbers())

    @functools.cached_property
    def _kl_noise(self) -> dict[str, ArrayLike]:
        if self._kl_numbers is None:
            return self._noise
        return noise(self._posteriors, self._kl_numbers())

    def _kl_noise_of(self, name: str) -> ArrayLike:
        return self._kl_noise[name]


@dataclasses.dataclass(kw_only=True)
class ForwardPass:
    """The draw of one forward pass, and the loss that it added.

    `drawn` holds what the estimator needs. `loss` stays in `losses` of the
    layer as long as the forward pass lasts. `calls` counts those that have
    drawn noise of outputs; the signs of flipout are the same in all calls.
    """

    means: dict[str, ArrayLike]
    drawn: dict[str, ArrayLike]
    seed: Any
    kl_per_example: Any
    loss: Any
    calls: int = 0
    sign_streams = INPUT_SIGNS, OUTPUT_SIGNS

    def next_stream(self) -> int:
        """Returns the stream of the noise of the outputs, new at each call."""
        self.calls += 1
        return OUTPUTS + self.calls
