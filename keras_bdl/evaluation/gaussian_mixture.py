"""Scores of real targets under equally weighted mixtures of Gaussians.

The components, one for each posterior draw, are on the first axis of the
means and variances; a single Gaussian is a mixture of one. Every target value
is scored by its own, marginal, mixture.
"""

import numpy as np

from keras_bdl.data.checked_inputs import numbers


def mixture_log_likelihood(y, means, variances) -> float:
    """Returns the mean over the target values of their log density.

    Args:
        y: Targets.
        means: Means of the components, `(draws, *y.shape)`.
        variances: Positive variances, broadcastable to `means`.
    """
    y, means, variances = _components(y, means, variances, zero_allowed=False)
    log_density = -0.5 * (
        np.log(2 * np.pi * variances) + (y - means) ** 2 / variances
    )
    return float(np.mean(np.logaddexp.reduce(log_density, axis=0))) - np.log(
        len(means)
    )


def mixture_interval_coverage(y, means, variances, level: float) -> float:
    """Returns the share of the target values in their central interval.

    A value lies inside the interval that holds the probability `level` if its
    distribution function is between `(1 - level)/2` and `(1 + level)/2`, so
    that no quantile of the mixture has to be found.

    Args:
        y: Targets.
        means: Means of the components, `(draws, *y.shape)`.
        variances: Positive variances, broadcastable to `means`.
        level: Probability that the interval holds.
    """
    from scipy.special import ndtr

    if not 0 < level < 1:
        raise ValueError(
            f"`level` must be between 0 and 1. Received: level={level}"
        )
    y, means, variances = _components(y, means, variances, zero_allowed=False)
    cdf = ndtr((y - means) / np.sqrt(variances)).mean(0)
    return float(np.mean(np.abs(2 * cdf - 1) <= level))


def mixture_crps(y, means, variances) -> float:
    """Returns the continuous ranked probability score, in the target's units.

    With X and X' independent draws from the mixture,

        CRPS = E|X - y| - E|X - X'| / 2                                   (1)

    and both expectations are known for Gaussian components. A component of
    variance zero is a point; a single point scores the absolute error.

    Args:
        y: Targets.
        means: Means of the components, `(draws, *y.shape)`.
        variances: Variances, not negative, broadcastable to `means`.

    Reference:
        - Gneiting and Raftery, 2007, eq. 21; Grimit et al., 2006, for
          mixtures
    """
    y, means, variances = _components(y, means, variances, zero_allowed=True)
    distance = _mean_absolute(y - means, variances).mean()
    # One component against all at a time keeps memory linear in the draws.
    spread = np.mean(
        [
            _mean_absolute(means - m, variances + v).mean()
            for m, v in zip(means, variances, strict=True)
        ]
    )
    return float(distance - spread / 2)  # (1)


def _mean_absolute(mean, variance):
    """E|X| of a Gaussian X."""
    from scipy.special import erf

    # A variance of zero leaves |mean|; 1 only keeps the division quiet.
    scale = np.sqrt(2 * np.where(variance > 0, variance, 1.0))
    z = mean / scale
    spread = mean * erf(z) + scale * np.exp(-(z**2)) / np.sqrt(np.pi)
    return np.where(variance > 0, spread, np.abs(mean))


def _components(y, means, variances, zero_allowed):
    y, means = numbers("y", y), numbers("means", means)
    variances = np.broadcast_to(numbers("variances", variances), means.shape)
    if means.shape[1:] != y.shape:
        raise ValueError(
            "`means` must have the shape of `y` behind an axis of draws, "
            f"{('draws', *y.shape)}. Received: means of shape {means.shape}"
        )
    lowest = variances.min()
    if lowest < 0 or (lowest == 0 and not zero_allowed):
        allowed = "not be negative" if zero_allowed else "be positive"
        raise ValueError(
            f"`variances` must {allowed}. "
            f"Received: a smallest variance of {lowest:g}"
        )
    return y, means, variances
