"""Laplace prior."""

import math
from collections.abc import Callable
from collections.abc import Sequence
from typing import Any

import keras
from keras import ops

from keras_bdl._aliases import ArrayLike
from keras_bdl._arguments import check_number
from keras_bdl.distributions._weight_distribution import WeightDistribution
from keras_bdl.priors._prior import Prior


@keras.saving.register_keras_serializable(package="keras_bdl")
class Laplace(Prior):
    """Independent weights with Laplace distributions.

        log p = -|w - m|/b - log 2b

    This prior is not the Laplace approximation, which is
    `keras_bdl.posteriors.Laplace`.

    Args:
        scale: Scale b. Defaults to `1.0`.
        mean: Mean m. Defaults to `0.0`.

    Example:

    ```python
    optimizer = keras_bdl.SGNHT(prior=keras_bdl.priors.Laplace(5.0))
    ```
    """

    def __init__(self, scale: float = 1.0, mean: float = 0.0, **kwargs):
        super().__init__(**kwargs)
        self.scale = float(check_number("scale", scale, above=0.0))
        self.mean = float(check_number("mean", mean))

    def log_prob(self, x: ArrayLike) -> ArrayLike:
        """Returns the log density of each weight."""
        return -ops.abs(x - self.mean) / self.scale - math.log(2 * self.scale)

    def expected_log_prob(
        self, q: WeightDistribution, noise: Callable[[], ArrayLike]
    ) -> ArrayLike | None:
        """Returns the expected `log_prob`, or `None` without a closed form."""
        del noise
        distance = q.expected_distance(self.mean)
        if distance is None:
            return None
        return -distance / self.scale - math.log(2 * self.scale)

    def sample(self, shape: Sequence[int], seed: Any = None) -> ArrayLike:
        """Returns one draw of a variable."""
        # The inverse distribution function at u + 1/2. |u| < 1/2 keeps the
        # logarithm finite.
        u = keras.random.uniform(
            shape, -0.5 + 1e-7, 0.5, dtype="float32", seed=seed
        )
        size = -ops.log1p(-2.0 * ops.abs(u))
        return self.mean + self.scale * ops.sign(u) * size

    def get_config(self):
        """Returns all arguments."""
        return {**super().get_config(), "scale": self.scale, "mean": self.mean}
