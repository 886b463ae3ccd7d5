"""Weights whose noise has the length of one normal number."""

import functools
import math

import numpy as np
from keras import ops

from keras_bdl.distributions.weight_distribution import WeightDistribution

# Below this distance from the mean, in standard deviations, the density stays
# what it is there.
SMALLEST_DISTANCE = 1e-6


class Radial(WeightDistribution):
    """Noise in a uniform direction, of half-normal length, for a whole tensor.

        w = mean + stddev u r,   u uniform on the unit sphere of R^D,
        r = |z|,  z ~ N(0, 1)                                             (1)

    D is the number of weights of the tensor. With `e = (w - mean) / stddev`,
    `rho = ||e||` and the area A of the sphere the density is

        log q = log 2 - log(2 pi)/2 - rho^2/2 - log A - (D - 1) log rho
                - sum_i log stddev_i                                      (2)

    and its expectation is closed, since `E r^2 = 1` and
    `E log r = -(gamma + log 2)/2`:

        E log q = log 2 - log(2 pi)/2 - 1/2 - log A
                  + (D - 1)(gamma + log 2)/2 - sum_i log stddev_i         (3)

    Each weight has the variance `stddev^2 / D`.

    Args:
        mean: Means, a float32 tensor.
        stddev: Scales of the noise, of the same shape.

    Reference:
        - Farquhar et al., [Radial Bayesian Neural Networks](
          https://arxiv.org/abs/1907.00865); (2) has the Jacobian that the
          note to their appendix C misses
    """

    @classmethod
    def num_normals(cls, size):
        """Returns one for each weight, and one for the length."""
        return size + 1

    @classmethod
    def noise(cls, normals, shape):
        """Returns `u r` of (1)."""
        direction = ops.reshape(normals[:-1], shape)
        length = ops.abs(normals[-1])
        norm = ops.sqrt(ops.sum(ops.square(direction)))
        return direction * (length / norm)  # (1)

    @property
    def variance(self):
        """The variance of each weight."""
        return ops.square(self.stddev) / self._size()

    def log_prob(self, x):
        """Returns (2), one number."""
        square = ops.sum(ops.square((x - self.mean) / self.stddev))
        smallest = ops.maximum(square, SMALLEST_DISTANCE**2)
        return self._log_density(square, ops.log(smallest) / 2)

    def negative_entropy(self):
        """Returns terms whose sum is (3)."""
        constant = _log_constant(self._size()) - 0.5
        constant += (self._size() - 1) * (np.euler_gamma + math.log(2)) / 2
        return constant / self._size() - ops.log(self.stddev)  # (3)

    def lengths(self, noise):
        """Returns the direction u of the noise, and the r that it can have."""
        norm = ops.sqrt(ops.sum(ops.square(noise)))
        return noise / ops.maximum(norm, SMALLEST_DISTANCE), *_half_normal()

    def expected_log_prob(self, q, noise):
        """Returns the mean of (2) under q, with a draw of its direction only.

        Of the terms of (2) only log rho has no closed expectation. In a fixed
        direction, that over all lengths is a sum of one dimension, and takes
        away the steep gradient near the mean of this distribution: there q
        is when training starts, if this is the posterior of a task before.
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
    """`log 2 - log(2 pi)/2 - log A`, in double precision."""
    log_area = math.log(2) + size / 2 * math.log(math.pi)
    log_area -= math.lgamma(size / 2)
    return math.log(2) - 0.5 * math.log(2 * math.pi) - log_area


@functools.cache
def _half_normal():
    """Returns lengths r and their probabilities, sums that are integrals.

    Close together near zero, where a logarithm changes most: evenly spaced in
    log r.
    """
    r = np.geomspace(1e-9, 8.0, 160)
    probabilities = r * np.exp(-0.5 * r**2)
    probabilities /= probabilities.sum()
    return r.astype("float32"), probabilities.astype("float32")
