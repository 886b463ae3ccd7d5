"""Mixture of two Gaussians."""

import math
import statistics
from collections.abc import Sequence
from typing import Any

import keras
from keras import ops

from keras_bdl._aliases import ArrayLike
from keras_bdl._arguments import check_number
from keras_bdl.priors._normal import Normal
from keras_bdl.priors._prior import Prior


@keras.saving.register_keras_serializable(package="keras_bdl")
class ScaleMixture(Prior):
    """Independent weights from a mixture of two Gaussians around zero.

        p(w) = pi N(w; 0, s_1^2) + (1 - pi) N(w; 0, s_2^2)                (1)

    The narrow Gaussian keeps many weights near zero. The wide Gaussian lets
    the others be large.

    Args:
        stddev_1: Standard deviation s_1. Defaults to `1.0`.
        stddev_2: Standard deviation s_2. Defaults to `0.0025`.
        probability_1: Probability pi of the first Gaussian, between 0 and 1.
            Defaults to `0.5`.

    Example:

    ```python
    prior = keras_bdl.priors.ScaleMixture(probability_1=0.25)
    layer = keras.layers.Dense(400, kernel_regularizer=prior)
    ```

    Reference:
        - [Blundell et al., 2015](https://arxiv.org/abs/1505.05424), eq. 7;
          the defaults are close to the best values of the paper
    """

    def __init__(
        self,
        stddev_1: float = 1.0,
        stddev_2: float = 0.0025,
        *,
        probability_1: float = 0.5,
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.stddev_1 = float(check_number("stddev_1", stddev_1, above=0.0))
        self.stddev_2 = float(check_number("stddev_2", stddev_2, above=0.0))
        # For probability 1, use `Normal`.
        check_number("probability_1", probability_1, above=0.0, below=1.0)
        self.probability_1 = float(probability_1)

    def log_prob(self, x: ArrayLike) -> ArrayLike:
        """Returns the log density of each weight."""
        first = Normal(self.stddev_1).log_prob(x)
        second = Normal(self.stddev_2).log_prob(x)
        joint = ops.stack(
            [
                first + math.log(self.probability_1),
                second + math.log1p(-self.probability_1),
            ]
        )
        return ops.logsumexp(joint, axis=0)  # (1)

    def sample(self, shape: Sequence[int], seed: Any = None) -> ArrayLike:
        """Returns one draw of a variable."""
        # One call makes both numbers of a weight: two calls with the same
        # integer seed would return the same numbers.
        noise = keras.random.normal((2, *shape), dtype="float32", seed=seed)
        is_first = noise[0] < statistics.NormalDist().inv_cdf(
            self.probability_1
        )
        return noise[1] * ops.where(is_first, self.stddev_1, self.stddev_2)

    def get_config(self):
        """Returns all arguments."""
        return {
            **super().get_config(),
            "stddev_1": self.stddev_1,
            "stddev_2": self.stddev_2,
            "probability_1": self.probability_1,
        }
