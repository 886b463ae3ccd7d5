"""Priors of the vectors of weights that lead to one output feature.

The last axis of a variable counts the vectors. A vector holds the `d` weights
of one output feature of a `Dense` or convolutional kernel. In a variable of
rank 0 or 1, such as a bias, each entry is a vector.
"""

import functools
import math
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_bdl._aliases import ArrayLike
from keras_bdl._arguments import check_number
from keras_bdl.priors._prior import Prior

# A smaller weight counts as zero, because (k - 1)/x may overflow.
SMALLEST = 1e-30

# Tables of quantiles: two standard normal draws in 10^9 lie beyond the limit.
LIMIT, SIZE = 6.0, 4097


def group_length(shape: Sequence[int]) -> int:
    """Returns d, the number of weights in a vector."""
    return math.prod(shape[:-1])


def group_count(shape: Sequence[int]) -> int:
    """Returns the number of vectors."""
    return math.prod(shape[-1:])


def squared_norms(x: Any) -> Any:
    """Returns the squared length of each vector."""
    return ops.sum(ops.square(x), axis=tuple(range(len(x.shape) - 1)))


def normalize(x: Any) -> Any:
    """Returns each vector divided by its length."""
    return x / ops.sqrt(squared_norms(x))


def log_sphere_area(length: int) -> float:
    """Returns the log area of the unit sphere in d dimensions."""
    half = 0.5 * length
    return math.log(2.0) + half * math.log(math.pi) - math.lgamma(half)


@functools.cache
def table_probabilities() -> tuple:
    """Returns the probabilities below and above each entry of a table.

    The entries are standard normal numbers at equal distances. This spacing
    puts many entries into both tails.
    """
    from scipy.special import ndtr

    scores = np.linspace(-LIMIT, LIMIT, SIZE)
    return ndtr(scores), ndtr(-scores)


def interpolate(quantiles: Any, scores: Any) -> Any:
    """Maps standard normal numbers to draws of another distribution.

    `quantiles` are those of the other distribution at `table_probabilities`.
    """
    table = ops.convert_to_tensor(quantiles, "float32")
    position = (ops.clip(scores, -LIMIT, LIMIT) + LIMIT) * (
        (SIZE - 1) / (2 * LIMIT)
    )
    left = ops.minimum(ops.floor(position), SIZE - 2)
    index = ops.cast(left, "int32")
    low = ops.take(table, index)
    return low + (position - left) * (ops.take(table, index + 1) - low)


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
        dataset_size: N, the number of training examples, where this prior is a
            regularizer. Defaults to `None`: `keras_bdl.Model.fit` counts them.

    Example:

    ```python
    prior = keras_bdl.extend.SymmetricGamma(concentration=9, scale=5.0)
    ```
    """

    def __init__(
        self,
        concentration: float = 1.0,
        scale: float = 1.0,
        *,
        dataset_size: int | None = None,
    ):
        super().__init__(dataset_size=dataset_size)
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

    def _quantiles(self) -> Any:
        from scipy.special import gammainccinv
        from scipy.special import gammaincinv

        below, above = table_probabilities()
        k = self.concentration
        lower, upper = gammaincinv(k, below), gammainccinv(k, above)
        return np.where(below < above, lower, upper)

    def get_config(self) -> dict:
        """Returns all arguments."""
        return {
            **super().get_config(),
            "concentration": self.concentration,
            "scale": self.scale,
        }


@keras.saving.register_keras_serializable(package="keras_bdl")
class GroupLaplace(Prior):
    """Independent vectors of weights, with density `exp(-||v||/b) / Z` each.

    A vector `v` holds the `d` weights of one output feature: all entries of a
    variable with the same index on the last axis. The density of a vector is

        p(v) = exp(-||v||/b) / Z,   Z = A_d Gamma(d) b^d                  (1)

    where `A_d` is the area of the unit sphere. The direction of `v` is
    uniform, and its length has a Gamma distribution with mean `d b`. In a
    variable of rank 0 or 1, each entry is a vector, with a Laplace
    distribution. `log_prob` returns one number for each vector.

    Args:
        scale: Scale b. Defaults to `1.0`.
        dataset_size: N, the number of training examples, where this prior is a
            regularizer. Defaults to `None`: `keras_bdl.Model.fit` counts them.

    Example:

    ```python
    prior = keras_bdl.extend.GroupLaplace(5.0)
    layer = keras.layers.Conv2D(32, 3, kernel_regularizer=prior)
    ```

    Reference:
        - Heek and Kalchbrenner, [Bayesian Inference for Large Scale Image
          Classification](https://arxiv.org/abs/1908.03491), section 5
    """

    def __init__(self, scale: float = 1.0, *, dataset_size: int | None = None):
        super().__init__(dataset_size=dataset_size)
        self.scale = float(check_number("scale", scale, above=0.0))

    def of_scales(self, length: int) -> SymmetricGamma:
        """Returns the prior of the magnitudes of vectors.

        A vector is `s u`, with a direction `u` and a magnitude `s` of either
        sign. If the vector has the prior (1), `s` has the prior
        `SymmetricGamma`.

        Args:
            length: d, the number of weights in a vector.
        """
        check_number("length", length, at_least=1, integer=True)
        return SymmetricGamma(
            length, self.scale, dataset_size=self.dataset_size.given
        )

    def log_prob(self, x: ArrayLike) -> ArrayLike:
        """Returns the log density of each vector."""
        d, b = group_length(x.shape), self.scale
        constant = log_sphere_area(d) + math.lgamma(d) + d * math.log(b)
        # The root has an infinite gradient at zero. The bound makes the
        # gradient 0.
        norms = ops.sqrt(ops.maximum(squared_norms(x), 1e-30))
        return -norms / b - constant  # (1)

    def sample(self, shape: Sequence[int], seed: Any = None) -> ArrayLike:
        """Returns one draw of a variable."""
        d = group_length(shape)
        noise = keras.random.normal(
            (2 * d, group_count(shape)), dtype="float32", seed=seed
        )
        # Half the sum of 2 d squared normal numbers has the distribution
        # Gamma(d), and is independent of the direction.
        lengths = self.scale * squared_norms(noise) / 2.0
        return ops.reshape(lengths * normalize(noise[:d]), shape)

    def get_config(self) -> dict:
        """Returns all arguments."""
        return {**super().get_config(), "scale": self.scale}


@keras.saving.register_keras_serializable(package="keras_bdl")
class UnitDirection(Prior):
    """Independent vectors of weights with a length near 1.

    Use this prior for the directions of weight normalization. The length of a
    direction vector does not change the outputs, but a very small or large
    length changes the effective step size. A vector `v` holds the `d` weights
    of one output feature: all entries of a variable with the same index on the
    last axis. The density of a vector is

        p(v) = exp(-d/2 (||v||^2 - 1)^2) / Z                              (1)

    The direction of `v` is uniform. For large d, the length is not 1 but near
    `sqrt((1 + sqrt 3)/2) = 1.169`, because the volume grows with the length.
    In a variable of rank 0 or 1, each entry is a vector. `log_prob` returns
    one number for each vector.

    Args:
        dataset_size: N, the number of training examples, where this prior is a
            regularizer. Defaults to `None`: `keras_bdl.Model.fit` counts them.

    Example:

    ```python
    prior = keras_bdl.extend.UnitDirection()
    ```

    Reference:
        - Heek and Kalchbrenner, [Bayesian Inference for Large Scale Image
          Classification](https://arxiv.org/abs/1908.03491), eq. 13
    """

    def log_prob(self, x: ArrayLike) -> ArrayLike:
        """Returns the log density of each vector."""
        d = group_length(x.shape)
        log_normalizer, _ = _norm_distribution(d)
        excess = squared_norms(x) - 1.0
        return -0.5 * d * ops.square(excess) - log_normalizer  # (1)

    def sample(self, shape: Sequence[int], seed: Any = None) -> ArrayLike:
        """Returns one draw of a variable."""
        d = group_length(shape)
        noise = keras.random.normal(
            (d + 1, group_count(shape)), dtype="float32", seed=seed
        )
        _, quantiles = _norm_distribution(d)
        lengths = interpolate(quantiles, noise[d])
        return ops.reshape(lengths * normalize(noise[:d]), shape)


@functools.cache
def _norm_distribution(d: Any) -> Any:
    """Returns `log Z` and quantiles of the length of a vector.

    The length r has the density

        r^(d - 1) exp(-d/2 (r^2 - 1)^2)                                   (2)

    The function integrates (2) over a range around the mode, the root of
    `2 d r^2 (r^2 - 1) = d - 1`. On this range, the trapezoidal rule is exact to
    8 digits. The density is narrow, so the part outside the range adds nothing.
    """
    from scipy.special import xlogy

    mode = math.sqrt((1.0 + math.sqrt(1.0 + 2.0 * (d - 1) / d)) / 2.0)
    curvature = (d - 1) / mode**2 + 2.0 * d * (3.0 * mode**2 - 1.0)
    reach = 12.0 / math.sqrt(curvature)
    r = np.linspace(max(mode - reach, 0.0), mode + reach, 2**14 + 1)
    log_density = xlogy(d - 1, r) - 0.5 * d * (r**2 - 1.0) ** 2  # (2)
    peak = log_density.max()
    density = np.exp(log_density - peak)
    cells = np.diff(r) * (density[1:] + density[:-1]) / 2.0
    mass = np.concatenate([[0.0], np.cumsum(cells)])
    log_normalizer = log_sphere_area(d) + peak + math.log(mass[-1])
    below, _ = table_probabilities()
    return log_normalizer, np.interp(below, mass / mass[-1], r)
