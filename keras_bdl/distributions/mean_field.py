"""Independent Gaussian weights."""

import math

from keras import ops

from keras_bdl.distributions.weight_distribution import WeightDistribution

# Where the distance to a point is larger, in standard deviations, its sign is
# certain to all digits of float32.
CERTAIN = 8.0


class MeanField(WeightDistribution):
    """Independent Gaussians, `log q = sum_i log N(w_i; mean_i, stddev_i^2)`.

    Args:
        mean: Means, a float32 tensor.
        stddev: Standard deviations, of the same shape.
    """

    @classmethod
    def num_normals(cls, size):
        """Returns `size`."""
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
        return -0.5 * ops.square(noise) - self._log_normalizer()

    def negative_entropy(self):
        """Returns `-log stddev_i - log(2 pi e)/2`."""
        return -self._log_normalizer() - 0.5

    def expected_distance(self, point):
        """Returns `E |w_i - point|`, the mean of a folded Gaussian."""
        shift = self.mean - point
        # The bound keeps the gradient finite where stddev is tiny.
        ratio = ops.clip(shift / self.stddev, -CERTAIN, CERTAIN)
        peak = math.sqrt(2 / math.pi) * ops.exp(-0.5 * ops.square(ratio))
        return self.stddev * peak + shift * ops.erf(ratio / math.sqrt(2))

    def expected_log_prob(self, q, noise):
        """Returns `E log p(w_i)`, which the moments of q give."""
        del noise
        spread = 0.5 * q.variance / ops.square(self.stddev)
        return self.log_prob(q.mean) - spread

    def _log_normalizer(self):
        return ops.log(self.stddev) + 0.5 * math.log(2 * math.pi)
