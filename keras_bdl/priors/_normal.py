"""Gaussian prior."""

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
class Normal(Prior):
    """Independent Gaussian weights.

        log p = -(w - m)^2/(2 s^2) - log(s sqrt(2 pi))

    Args:
        stddev: Standard deviation s. Defaults to `1.0`.
        mean: Mean m. Defaults to `0.0`.

    Example:

    ```python
    optimizer = keras_bdl.ATMC(prior=keras_bdl.priors.Normal(0.1))
    ```
    """

    def __init__(self, stddev: float = 1.0, mean: float = 0.0, **kwargs):
        super().__init__(**kwargs)
        self.stddev = float(check_number("stddev", stddev, above=0.0))
        self.mean = float(check_number("mean", mean))

    def log_prob(self, x: ArrayLike) -> ArrayLike:
        """Returns the log density of each weight."""
        return self._log_prob(self._squared_distance(x))

    def expected_log_prob(
        self, q: WeightDistribution, noise: Callable[[], ArrayLike]
    ) -> ArrayLike | None:
        """Returns the expected `log_prob` of weights with distribution q."""
        del noise
        return self._log_prob(self._squared_distance(q.mean) + q.variance)

    def _squared_distance(self, x):
        return ops.square(x - self.mean if self.mean else x)

    def _log_prob(self, squared_distance):
        # Few operations: a network has them for each of its tensors.
        factor = -0.5 / self.stddev**2
        constant = math.log(self.stddev) + 0.5 * math.log(2 * math.pi)
        return factor * squared_distance - constant

    def sample(self, shape: Sequence[int], seed: Any = None) -> ArrayLike:
        """Returns one draw of a variable."""
        return keras.random.normal(
            shape, self.mean, self.stddev, dtype="float32", seed=seed
        )

    def get_config(self):
        """Returns all arguments."""
        return {
            **super().get_config(),
            "stddev": self.stddev,
            "mean": self.mean,
        }
