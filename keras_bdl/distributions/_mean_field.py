"""Independent Gaussian weights."""

import math
from collections.abc import Callable
from collections.abc import Sequence

from keras import ops

from keras_bdl._aliases import ArrayLike
from keras_bdl.distributions._weight_distribution import WeightDistribution

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

    def _log_normalizer(self):
        return ops.log(self.stddev) + 0.5 * math.log(2 * math.pi)
