"""Independent Gaussian weights."""

import math

from keras import ops

from keras_bdl.distributions.weight_distribution import WeightDistribution


class MeanField(WeightDistribution):
    """Independent Gaussians, `log q = sum_i log N(w_i; mean_i, stddev_i^2)`.

    Args:
        mean: Means, a float32 tensor.
        stddev: Standard deviations, of the same shape.
    """

    @classmethod
    def num_normals(cls, size):
        """Returns how many normal numbers a draw of `size` weights needs."""
        return size

    @classmethod
    def noise(cls, normals, shape):
        """Returns the normal numbers."""
        return ops.reshape(normals, shape)

    @property
    def variance(self):
        """The variance of each weight."""
        return ops.square(self.stddev)

    def log_prob(self, x):
        """Returns the log density of each weight."""
        noise = (x - self.mean) / self.stddev
        constant = 0.5 * math.log(2 * math.pi)
        return -0.5 * ops.square(noise) - ops.log(self.stddev) - constant

    def negative_entropy(self):
        """Returns `-sum_i log stddev_i - D/2 log(2 pi e)`."""
        constant = 0.5 * math.log(2 * math.pi * math.e)
        size = math.prod(self.mean.shape)
        return -ops.sum(ops.log(self.stddev)) - size * constant
