"""Distributions of one tensor of weights: the base class and its families."""

import functools
import math
from collections.abc import Callable
from collections.abc import Sequence
from typing import Any

import numpy as np
from keras import ops

from keras_bdl._aliases import ArrayLike
from keras_bdl._aliases import Density

# The gradients of the next two functions compute the noise from the result.
# Otherwise XLA would draw all random numbers again, or keep more of them in
# memory.


@ops.custom_gradient
def perturbed(mean: ArrayLike, stddev: ArrayLike, noise: ArrayLike) -> Any:
    """Returns `mean + stddev noise`. The noise gets no gradient."""
    result = mean + stddev * noise

    def gradient(upstream: ArrayLike) -> tuple:
        return upstream, upstream * ((result - mean) / stddev), None

    return result, gradient


@ops.custom_gradient
def perturbation(stddev: ArrayLike, noise: ArrayLike) -> Any:
    """Returns `stddev noise`. The noise gets no gradient."""
    result = stddev * noise

    def gradient(upstream: ArrayLike) -> tuple:
        return upstream * (result / stddev), None

    return result, gradient


class WeightDistribution:
    """The distribution of one tensor of weights, `w = mean + stddev noise`.

    A subclass computes the noise from standard normal numbers, so a layer can
    draw these numbers for all its tensors at once. A distribution may be the
    posterior that a layer learns, or a prior.

    Args:
        mean: Means, a float32 tensor.
        stddev: Scales of the noise, of the same shape.
    """

    def __init__(self, mean: ArrayLike, stddev: ArrayLike):
        self.mean = mean
        self.stddev = stddev

    @classmethod
    def num_normals(cls, size: int) -> int:
        """Returns how many standard normal numbers a draw of weights needs."""
        raise NotImplementedError

    @classmethod
    def width(cls, size: int) -> float:
        """Returns the deviation of a weight in a tensor with the scale 1."""
        raise NotImplementedError

    @classmethod
    def noise(cls, normals: ArrayLike, shape: Sequence[int]) -> ArrayLike:
        """Returns the noise of one draw, from `num_normals` normal numbers."""
        raise NotImplementedError

    @property
    def variance(self) -> ArrayLike:
        """The variance of each weight."""
        raise NotImplementedError

    def log_prob(self, x: ArrayLike) -> ArrayLike:
        """Returns the log density: one number for each independent part."""
        raise NotImplementedError

    def negative_entropy(self) -> ArrayLike:
        """Returns one term for each weight; their sum is `E log q(w)`."""
        raise NotImplementedError

    def lengths(
        self, noise: ArrayLike
    ) -> tuple[ArrayLike, np.ndarray, np.ndarray]:
        """Returns a direction of noise, its possible lengths, their chances.

        Noise in the opposite direction has the same probabilities.
        """
        return noise, np.ones(1, "float32"), np.ones(1, "float32")

    def expected_distance(self, point: float) -> ArrayLike | None:
        """Returns `E |w_i - point|`, or `None` without a closed form."""
        del point
        return None

    def expected_log_prob(
        self, q: "WeightDistribution", noise: Callable[[], ArrayLike]
    ) -> ArrayLike | None:
        """Returns `E log p(w)` under q, or `None` without a closed form.

        This distribution is p. `noise` returns the noise of a draw of q.
        `keras_bdl.extend.Prior` has the same method.
        """
        del q, noise
        return None

    def draw(self, noise: ArrayLike) -> ArrayLike:
        """Returns the weights for given noise."""
        return perturbed(self.mean, self.stddev, noise)

    def perturbation(self, noise: ArrayLike) -> ArrayLike:
        """Returns the weights for given noise, minus their means."""
        return perturbation(self.stddev, noise)

    def kl_divergence(
        self, prior: Density, noise: Callable[[], ArrayLike]
    ) -> ArrayLike:
        """Returns `KL(q || p) = E log q(w) - E log p(w)` in nats.

        The first term has a closed form. The second term is the result of
        `prior.expected_log_prob`. If the prior has no such method, or if the
        result is `None`, one draw estimates the second term.

        Args:
            prior: p, an object with `log_prob`.
            noise: A function that returns the noise of a draw of this
                distribution.
        """
        expected = getattr(prior, "expected_log_prob", None)
        log_prior = expected(self, noise) if expected else None
        if log_prior is None:
            log_prior = prior.log_prob(self.draw(noise()))
        entropy = self.negative_entropy()
        if entropy.shape == log_prior.shape:
            return ops.sum(entropy - log_prior)
        return ops.sum(entropy) - ops.sum(log_prior)


# If the mean is farther than this from a point, in standard deviations, the
# weight and the mean lie on the same side of the point, up to float32 rounding.
CERTAIN = 8.0


class MeanField(WeightDistribution):
    """Independent Gaussian weights.

        log q = sum_i log N(w_i; mean_i, stddev_i^2)

    Args:
        mean: Means, a float32 tensor.
        stddev: Standard deviations, of the same shape.

    Example:

    ```python
    q = keras_bdl.distributions.MeanField(tf.zeros(3), tf.ones(3))
    q.log_prob(tf.constant([0.1, 0.2, 0.3]))
    ```
    """

    @classmethod
    def num_normals(cls, size: int) -> int:
        """Returns `size`: one number per weight."""
        return size

    @classmethod
    def width(cls, size: int) -> float:
        """Returns 1."""
        return 1.0

    @classmethod
    def noise(cls, normals: ArrayLike, shape: Sequence[int]) -> ArrayLike:
        """Returns the normal numbers in the given shape."""
        return ops.reshape(normals, shape)

    @property
    def variance(self) -> ArrayLike:
        """The variance of each weight."""
        return ops.square(self.stddev)

    def log_prob(self, x: ArrayLike) -> ArrayLike:
        """Returns the log density of each weight."""
        noise = (x - self.mean) / self.stddev
        return -0.5 * ops.square(noise) - self._log_normalizer()

    def negative_entropy(self) -> ArrayLike:
        """Returns `-log stddev_i - log(2 pi e)/2` for each weight."""
        return -0.5 * math.log(2 * math.pi * math.e) - ops.log(self.stddev)

    def expected_distance(self, point: float) -> ArrayLike | None:
        """Returns `E |w_i - point|`, the mean of a folded Gaussian."""
        shift = self.mean - point
        # The bound keeps the gradient finite if `stddev` is tiny.
        ratio = ops.clip(shift / self.stddev, -CERTAIN, CERTAIN)
        peak = math.sqrt(2 / math.pi) * ops.exp(-0.5 * ops.square(ratio))
        return self.stddev * peak + shift * ops.erf(ratio / math.sqrt(2))

    def expected_log_prob(
        self, q: WeightDistribution, noise: Callable[[], ArrayLike]
    ) -> ArrayLike | None:
        """Returns `E log p(w_i)` under q, from the mean and variance of q."""
        del noise
        spread = 0.5 * q.variance / ops.square(self.stddev)
        return self.log_prob(q.mean) - spread

    def _log_normalizer(self) -> ArrayLike:
        return ops.log(self.stddev) + 0.5 * math.log(2 * math.pi)


# Below this distance from the mean, in standard deviations, `log rho` in the
# density (2) is constant.
SMALLEST_DISTANCE = 1e-6


class Radial(WeightDistribution):
    """Weights with noise in a uniform direction, of half-normal length.

        w = mean + stddev u r,   u uniform on the unit sphere of R^D,
        r = |z|,  z ~ N(0, 1)                                             (1)

    One draw of the tensor has one direction u and one length r. D is the number
    of weights of the tensor. With `e = (w - mean) / stddev`, `rho = ||e||` and
    the area A of the unit sphere, the density q is

        log q = log 2 - log(2 pi)/2 - rho^2/2 - log A - (D - 1) log rho
                - sum_i log stddev_i                                      (2)

    Since `E r^2 = 1` and `E log r = -(gamma + log 2)/2`, with Euler's constant
    gamma, the expectation is

        E log q = log 2 - log(2 pi)/2 - 1/2 - log A
                  + (D - 1)(gamma + log 2)/2 - sum_i log stddev_i         (3)

    Each weight has the variance `stddev^2 / D`.

    Args:
        mean: Means, a float32 tensor.
        stddev: Scales of the noise, of the same shape.

    Example:

    ```python
    q = keras_bdl.distributions.Radial(tf.zeros(3), tf.ones(3))
    q.log_prob(tf.constant([0.1, 0.2, 0.3]))
    ```

    Reference:
        - Farquhar et al., [Radial Bayesian Neural Networks](
          https://arxiv.org/abs/1907.00865). (2) contains the Jacobian, which
          the note to appendix C of the paper omits
    """

    @classmethod
    def num_normals(cls, size: int) -> int:
        """Returns `size + 1`: one number per weight, one for the length."""
        return size + 1

    @classmethod
    def width(cls, size: int) -> float:
        """Returns `1 / sqrt(size)`."""
        return size**-0.5

    @classmethod
    def noise(cls, normals: ArrayLike, shape: Sequence[int]) -> ArrayLike:
        """Returns `u r` of (1)."""
        direction = ops.reshape(normals[:-1], shape)
        length = ops.abs(normals[-1])
        norm = ops.sqrt(ops.sum(ops.square(direction)))
        return direction * (length / norm)  # (1)

    @property
    def variance(self) -> ArrayLike:
        """The variance of each weight."""
        return ops.square(self.stddev) / self._size()

    def log_prob(self, x: ArrayLike) -> ArrayLike:
        """Returns (2), one number for the whole tensor."""
        square = ops.sum(ops.square((x - self.mean) / self.stddev))
        smallest = ops.maximum(square, SMALLEST_DISTANCE**2)
        return self._log_density(square, ops.log(smallest) / 2)

    def negative_entropy(self) -> ArrayLike:
        """Returns one term for each weight; their sum is `E log q`, (3)."""
        constant = _log_constant(self._size()) - 0.5
        constant += (self._size() - 1) * (np.euler_gamma + math.log(2)) / 2
        return constant / self._size() - ops.log(self.stddev)  # (3)

    def lengths(
        self, noise: ArrayLike
    ) -> tuple[ArrayLike, np.ndarray, np.ndarray]:
        """Returns the direction u, lengths r, and the probabilities of r."""
        norm = ops.sqrt(ops.sum(ops.square(noise)))
        return noise / ops.maximum(norm, SMALLEST_DISTANCE), *_half_normal()

    def expected_log_prob(
        self, q: WeightDistribution, noise: Callable[[], ArrayLike]
    ) -> ArrayLike | None:
        """Estimates the expectation of (2) under q, with one drawn direction.

        Only `log rho` in (2) has an expectation without a closed form. For the
        drawn direction, the function computes this expectation as a weighted
        sum over the fixed lengths that `q.lengths` returns. A drawn length
        would give steep gradients near the mean of this distribution. If this
        distribution is the posterior of an earlier task, the training of q
        starts exactly at this mean.
        """
        step, lengths, probabilities = q.lengths(noise())
        step = q.stddev * step / self.stddev
        shift = (q.mean - self.mean) / self.stddev
        shift_square = ops.sum(ops.square(shift))
        even = shift_square + ops.sum(ops.square(step)) * lengths**2
        odd = 2 * ops.sum(step * shift) * lengths
        squares = ops.maximum(ops.stack([even + odd, even - odd]), 1e-30)
        log_rho = ops.sum(ops.log(squares) * probabilities) / 4
        spread = ops.sum(q.variance / ops.square(self.stddev))
        return self._log_density(shift_square + spread, log_rho)

    def _log_density(self, square: ArrayLike, log_rho: ArrayLike) -> ArrayLike:
        return (  # (2)
            _log_constant(self._size())
            - square / 2
            - (self._size() - 1) * log_rho
            - ops.sum(ops.log(self.stddev))
        )

    def _size(self) -> int:
        return math.prod(self.mean.shape)


def _log_constant(size: int) -> float:
    """Returns `log 2 - log(2 pi)/2 - log A`, in double precision."""
    log_area = math.log(2) + size / 2 * math.log(math.pi)
    log_area -= math.lgamma(size / 2)
    return math.log(2) - 0.5 * math.log(2 * math.pi) - log_area


@functools.cache
def _half_normal() -> tuple[np.ndarray, np.ndarray]:
    """Returns lengths r and their probabilities, to integrate over r.

    The lengths are evenly spaced in log r. They are dense near zero, where
    log r changes most.
    """
    r = np.geomspace(1e-9, 8.0, 160)
    probabilities = r * np.exp(-0.5 * r**2)
    probabilities /= probabilities.sum()
    return r.astype("float32"), probabilities.astype("float32")
