"""Prior of the direction vectors of weight normalization."""

import functools
import math
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_bdl._aliases import ArrayLike
from keras_bdl.priors._groups import group_count
from keras_bdl.priors._groups import group_length
from keras_bdl.priors._groups import log_sphere_area
from keras_bdl.priors._groups import normalize
from keras_bdl.priors._groups import squared_norms
from keras_bdl.priors._prior import Prior
from keras_bdl.priors._quantiles import interpolate
from keras_bdl.priors._quantiles import table_probabilities


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

    Example:

    ```python
    prior = keras_bdl.priors.UnitDirection()
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
def _norm_distribution(d):
    """Returns `log Z` and quantiles of the length of a vector.

    The length r has the density

        r^(d - 1) exp(-d/2 (r^2 - 1)^2)                                   (2)

    The function integrates (2) over a range around the mode, the root of
    `2 d r^2 (r^2 - 1) = d - 1`. On this range, the trapezoidal rule is exact to
    8 digits. The density is narrow, so the part outside the range adds nothing.

    Args:
        d: The number of weights in a vector.
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
