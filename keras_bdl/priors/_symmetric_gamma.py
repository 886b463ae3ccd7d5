"""Gamma prior on the absolute value of a weight, with a random sign."""

import math
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_bdl._aliases import ArrayLike
from keras_bdl._arguments import check_number
from keras_bdl.priors._prior import Prior
from keras_bdl.priors._quantiles import interpolate
from keras_bdl.priors._quantiles import table_probabilities

# A smaller weight counts as zero, because (k - 1)/x may overflow.
SMALLEST = 1e-30


@keras.saving.register_keras_serializable(package="keras_bdl")
class SymmetricGamma(Prior):
    """Independent weights with Gamma distributed sizes and random signs.

        p(w) = |w|^(k - 1) exp(-|w|/b) / (2 Gamma(k) b^k)                 (1)

    For `k = 1`, this is a Laplace distribution. For larger k, it has two modes,
    at `(k - 1) b` and `-(k - 1) b`. The mean of `|w|` is `k b`.
    `GroupLaplace.of_scales` returns this prior for the magnitudes of vectors.

    At zero, `log_prob` is minus infinity for `k > 1` and infinite for `k < 1`.
    The gradient of `log_prob` at zero is 0, by symmetry. The gradient of the
    likelihood can therefore move a weight that starts at zero.

    Args:
        concentration: Shape k. Defaults to `1.0`.
        scale: Scale b. Defaults to `1.0`.

    Example:

    ```python
    prior = keras_bdl.priors.SymmetricGamma(concentration=9, scale=5.0)
    ```
    """

    def __init__(
        self, concentration: float = 1.0, scale: float = 1.0, **kwargs
    ):
        super().__init__(**kwargs)
        check_number("concentration", concentration, above=0.0)
        self.concentration = float(concentration)
        self.scale = float(check_number("scale", scale, above=0.0))

    def log_prob(self, x: ArrayLike) -> ArrayLike:
        """Returns the log density of each weight."""
        k, size = self.concentration, ops.abs(x)
        constant = math.log(2.0) + math.lgamma(k) + k * math.log(self.scale)
        log_prob = -size / self.scale - constant
        if k == 1:  # 0 times the logarithm of zero is NaN
            return log_prob
        is_zero = size < SMALLEST
        # The gradient of the logarithm at zero is infinite. The gradient of the
        # sum would be NaN even if `where` drops that branch.
        log_size = ops.log(ops.where(is_zero, 1.0, size))
        at_zero = -math.inf if k > 1 else math.inf
        return log_prob + ops.where(is_zero, at_zero, (k - 1) * log_size)  # (1)

    def sample(self, shape: Sequence[int], seed: Any = None) -> ArrayLike:
        """Returns one draw of a variable."""
        # XLA cannot compile `keras.random.gamma`.
        noise = keras.random.normal((2, *shape), dtype="float32", seed=seed)
        size = self.scale * interpolate(self._quantiles(), noise[0])
        return ops.where(noise[1] < 0, -size, size)

    def _quantiles(self):
        from scipy.special import gammainccinv
        from scipy.special import gammaincinv

        below, above = table_probabilities()
        k = self.concentration
        lower, upper = gammaincinv(k, below), gammainccinv(k, above)
        return np.where(below < above, lower, upper)

    def get_config(self):
        """Returns all arguments."""
        return {
            **super().get_config(),
            "concentration": self.concentration,
            "scale": self.scale,
        }
