"""Gamma prior on the size of a weight of either sign."""

import math
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_bdl.aliases import ArrayLike
from keras_bdl.arguments import check_number
from keras_bdl.priors.prior import Prior
from keras_bdl.priors.quantiles import interpolate
from keras_bdl.priors.quantiles import table_probabilities

# Below it a weight counts as zero: at smaller ones (k - 1)/x may overflow.
SMALLEST = 1e-30


@keras.saving.register_keras_serializable(package="keras_bdl")
class SymmetricGamma(Prior):
    """Independent weights whose sizes are Gamma distributed, signs random.

        p(w) = |w|^(k - 1) exp(-|w|/b) / (2 Gamma(k) b^k)                 (1)

    With `k = 1` this is a Laplace distribution; with a larger k it has two
    modes, at `(k - 1) b` and its opposite, and the mean of `|w|` is `k b`. It
    is what `GroupLaplace` makes of the magnitude of a normalized vector.

    With `k > 1` the density vanishes at zero, and with `k < 1` it is infinite
    there. `log_prob` says so; its gradient at zero itself is 0, that of the
    symmetry, so that a weight which starts there can be moved by the data.

    Args:
        concentration: k. Defaults to `1.0`.
        scale: b. Defaults to `1.0`.
        dataset_size: See `Prior`. Defaults to `None`.

    Example:

    ```python
    prior = keras_bdl.priors.SymmetricGamma(concentration=9, scale=5.0)
    ```
    """

    def __init__(
        self,
        concentration: float = 1.0,
        scale: float = 1.0,
        dataset_size: int | None = None,
    ):
        super().__init__(dataset_size)
        check_number("concentration", concentration, above=0.0)
        self.concentration = float(concentration)
        self.scale = float(check_number("scale", scale, above=0.0))

    def log_prob(self, x: ArrayLike) -> ArrayLike:
        """Returns the log density of each weight."""
        k, size = self.concentration, ops.abs(x)
        constant = math.log(2.0) + math.lgamma(k) + k * math.log(self.scale)
        log_prob = -size / self.scale - constant
        if k == 1:  # 0 times the logarithm of zero would be NaN
            return log_prob
        is_zero = size < SMALLEST
        # No gradient of the logarithm may be taken at zero, not even of the
        # branch that is not chosen.
        log_size = ops.log(ops.where(is_zero, 1.0, size))
        at_zero = -math.inf if k > 1 else math.inf
        return log_prob + ops.where(is_zero, at_zero, (k - 1) * log_size)  # (1)

    def sample(self, shape: Sequence[int], seed: Any = None) -> ArrayLike:
        """Returns a draw of a variable of the given shape."""
        # Not by `keras.random.gamma`, which XLA cannot compile.
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
