"""Weights whose noise has the length of one normal number."""

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
        """Returns how many normal numbers a draw of `size` weights needs."""
        return size + 1

    @classmethod
    def noise(cls, normals, shape):
        """Returns `u r` of (1)."""
        direction, length = normals[:-1], ops.abs(normals[-1])
        norm = ops.sqrt(ops.sum(ops.square(direction)))
        return ops.reshape(direction * (length / norm), shape)

    @property
    def variance(self):
        """The variance of each weight."""
        return ops.square(self.stddev) / math.prod(self.mean.shape)

    def log_prob(self, x):
        """Returns (2), one number."""
        size = math.prod(self.mean.shape)
        square = ops.sum(ops.square((x - self.mean) / self.stddev))
        distance = ops.sqrt(ops.maximum(square, SMALLEST_DISTANCE**2))
        return (  # (2)
            _log_constant(size)
            - square / 2
            - (size - 1) * ops.log(distance)
            - ops.sum(ops.log(self.stddev))
        )

    def negative_entropy(self):
        """Returns (3)."""
        size = math.prod(self.mean.shape)
        constant = _log_constant(size) - 0.5
        constant += (size - 1) * (np.euler_gamma + math.log(2)) / 2
        return constant - ops.sum(ops.log(self.stddev))  # (3)


def _log_constant(size):
    """`log 2 - log(2 pi)/2 - log A`, in double precision."""
    log_area = math.log(2) + size / 2 * math.log(math.pi)
    log_area -= math.lgamma(size / 2)
    return math.log(2) - 0.5 * math.log(2 * math.pi) - log_area
