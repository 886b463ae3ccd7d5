"""Weights whose noise has a uniform direction and a half-normal length."""

import functools
import math
from collections.abc import Callable
from collections.abc import Sequence

import numpy as np
from keras import ops

from keras_bdl._aliases import ArrayLike
from keras_bdl.distributions._weight_distribution import WeightDistribution

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

    def _log_density(self, square, log_rho):
        """Returns (2)."""
        return (  # (2)
            _log_constant(self._size())
            - square / 2
            - (self._size() - 1) * log_rho
            - ops.sum(ops.log(self.stddev))
        )

    def _size(self):
        return math.prod(self.mean.shape)


def _log_constant(size):
    """Returns `log 2 - log(2 pi)/2 - log A`, in double precision."""
    log_area = math.log(2) + size / 2 * math.log(math.pi)
    log_area -= math.lgamma(size / 2)
    return math.log(2) - 0.5 * math.log(2 * math.pi) - log_area


@functools.cache
def _half_normal():
    """Returns lengths r and their probabilities, to integrate over r.

    The lengths are evenly spaced in log r. They are dense near zero, where
    log r changes most.
    """
    r = np.geomspace(1e-9, 8.0, 160)
    probabilities = r * np.exp(-0.5 * r**2)
    probabilities /= probabilities.sum()
    return r.astype("float32"), probabilities.astype("float32")
