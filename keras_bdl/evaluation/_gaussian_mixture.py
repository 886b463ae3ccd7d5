"""Scores of real targets under equally weighted mixtures of Gaussians.

The first axis of the means and variances holds the components, one for each
posterior sample. A single Gaussian is a mixture of one component. The functions
score every target value separately, under the mixture for this value.
"""

import numpy as np

from keras_bdl._aliases import ArrayLike
from keras_bdl._arguments import check_number
from keras_bdl._data._checked_inputs import numbers


def mixture_log_likelihood(
    y: ArrayLike, means: ArrayLike, variances: ArrayLike
) -> float:
    """Returns the mean log density of the target values.

    Args:
        y: Targets.
        means: Means of the components, `(samples, *y.shape)`.
        variances: Positive variances, broadcastable to `means`.

    Example:

    ```python
    means = np.zeros((8, 64))  # 8 samples of 64 predictions
    keras_bdl.evaluation.mixture_log_likelihood(x[:, 0], means, 1.0)
    ```
    """
    return float(np.mean(log_densities(y, means, variances)))


def log_densities(
    y: ArrayLike, means: ArrayLike, variances: ArrayLike
) -> np.ndarray:
    """Returns the log density of every target value.

    Args:
        y: Targets.
        means: Means of the components, `(samples, *y.shape)`.
        variances: Positive variances, broadcastable to `means`.
    """
    y, means, variances = _components(y, means, variances, zero_allowed=False)
    log_density = -0.5 * (
        np.log(2 * np.pi * variances) + (y - means) ** 2 / variances
    )
    return np.logaddexp.reduce(log_density, axis=0) - np.log(len(means))


def mixture_interval_coverage(
    y: ArrayLike, means: ArrayLike, variances: ArrayLike, *, level: float
) -> float:
    """Returns the fraction of target values inside their central interval.

    A value lies inside its central interval of probability `level` if the
    distribution function of the mixture at this value is between
    `(1 - level)/2` and `(1 + level)/2`.

    Args:
        y: Targets.
        means: Means of the components, `(samples, *y.shape)`.
        variances: Positive variances, broadcastable to `means`.
        level: Probability of the interval.

    Example:

    ```python
    means = np.zeros((8, 64))  # 8 samples of 64 predictions
    keras_bdl.evaluation.mixture_interval_coverage(
        x[:, 0], means, 1.0, level=0.95
    )
    ```
    """
    from scipy.special import ndtr

    check_number("level", level, above=0.0, below=1.0)
    y, means, variances = _components(y, means, variances, zero_allowed=False)
    cdf = ndtr((y - means) / np.sqrt(variances)).mean(0)
    return float(np.mean(np.abs(2 * cdf - 1) <= level))


def mixture_crps(y: ArrayLike, means: ArrayLike, variances: ArrayLike) -> float:
    """Returns the continuous ranked probability score, in the target's units.

    With X and X' independent samples of the mixture,

        CRPS = E|X - y| - E|X - X'| / 2                                   (1)

    Both expectations have a closed form for Gaussian components. A component
    with the variance zero is a point. If the mixture is a single point, the
    score is the absolute error.

    Args:
        y: Targets.
        means: Means of the components, `(samples, *y.shape)`.
        variances: Variances, at least zero, broadcastable to `means`.

    Example:

    ```python
    means = np.zeros((8, 64))  # 8 samples of 64 predictions
    keras_bdl.evaluation.mixture_crps(x[:, 0], means, 1.0)
    ```

    Reference:
        - Gneiting and Raftery, 2007, eq. 21; Grimit et al., 2006, for
          mixtures
    """
    return float(np.mean(crps_of_values(y, means, variances)))


def crps_of_values(
    y: ArrayLike, means: ArrayLike, variances: ArrayLike
) -> np.ndarray:
    """Returns the score (1) of `mixture_crps` for every target value.

    Args:
        y: Targets.
        means: Means of the components, `(samples, *y.shape)`.
        variances: Variances, at least zero, broadcastable to `means`.
    """
    y, means, variances = _components(y, means, variances, zero_allowed=True)
    distance = _mean_absolute(y - means, variances).mean(0)
    # The loop keeps memory linear in the number of components.
    spread = np.zeros(y.shape)
    for m, v in zip(means, variances, strict=True):
        spread += _mean_absolute(means - m, variances + v).mean(0)
    return distance - spread / len(means) / 2  # (1)


def _mean_absolute(mean, variance):
    """Returns E|X| of a Gaussian X."""
    from scipy.special import erf

    # If the variance is zero, 1 replaces it to avoid a division by zero, and
    # the last line replaces the result.
    scale = np.sqrt(2 * np.where(variance > 0, variance, 1.0))
    z = mean / scale
    spread = mean * erf(z) + scale * np.exp(-(z**2)) / np.sqrt(np.pi)
    return np.where(variance > 0, spread, np.abs(mean))


def _components(y, means, variances, zero_allowed):
    y, means = numbers("y", y), numbers("means", means)
    variances = np.broadcast_to(numbers("variances", variances), means.shape)
    if means.shape[1:] != y.shape:
        raise ValueError(
            "`means` must have the shape of `y` after a first axis of samples, "
            f"{('samples', *y.shape)}. Received: means of shape {means.shape}"
        )
    lowest = variances.min()
    if lowest < 0 or (lowest == 0 and not zero_allowed):
        allowed = "not be negative" if zero_allowed else "be positive"
        raise ValueError(
            f"`variances` must {allowed}. "
            f"Received: a smallest variance of {lowest:g}"
        )
    return y, means, variances
