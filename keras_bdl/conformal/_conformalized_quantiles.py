"""Conformalised quantiles of the predictive distribution."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from keras_bdl._arguments import check_choice
from keras_bdl.conformal._intervals import Core
from keras_bdl.conformal._intervals import IntervalPredictor
from keras_bdl.prediction import RegressionPrediction

SOURCES = (None, "mixture", "samples", "gaussian")
# Steps towards a quantile. Steps of Newton's method need about ten; halvings
# of the bracket, in flat places, as many as a float64 has bits.
MOST_STEPS = 80


class ConformalizedQuantiles(IntervalPredictor):
    """Intervals between two predictive quantiles, moved to the coverage.

    Use this method for the intervals of a regression whose predictive
    distribution is not symmetric or not Gaussian. With Q the quantiles of the
    predictive distribution, a = 1 - coverage, low = Q(a/2), high = Q(1 - a/2),

        score of y = max(low - y, y - high)                               (1)
        interval = [low - cutoff, high + cutoff]                          (2)

    The cutoff may be negative: intervals that were too wide get narrower.

    The coverage has the guarantee of `keras_bdl.extend.Conformal`.

    Args:
        source: The predictive distribution: `"mixture"` is one Gaussian for
            each kept posterior sample, `"samples"` the kept means of the
            samples without noise, `"gaussian"` one Gaussian with the
            predictive mean and variance. Keep samples with
            `keras_bdl.predict(..., keep_samples=True)`. Defaults to `None`:
            the first of these that the prediction given to `fit` can provide.
        joint: Whether all targets of an example share one cutoff, so that the
            coverage is that of all their intervals together. Otherwise every
            target has a cutoff of its own, and the coverage holds for each
            target. Defaults to `False`.

    Example:

    ```python
    p = keras_bdl.prediction.RegressionPrediction(
        np.zeros(100), variance_within=np.ones(100)
    )
    targets = np.random.default_rng(0).normal(size=100)
    conformal = keras_bdl.conformal.ConformalizedQuantiles().fit(p, targets)
    conformal(p).upper
    ```

    Reference:
        - [Romano et al., 2019](https://arxiv.org/abs/1905.03222), theorem 1
    """

    fitted_source: str | None = None

    def __init__(self, *, source: str | None = None, joint: bool = False):
        super().__init__(joint=joint)
        self.source = check_choice("source", source, SOURCES)

    def core(self, prediction: RegressionPrediction) -> Core:
        """Returns two quantiles of each value, and ones."""
        coverage, source = self.coverage, self.fitted_source
        if coverage is None or source is None:
            raise RuntimeError(
                "`ConformalizedQuantiles` is not fitted yet. Call "
                "`fit(prediction, y)` with held-out data. Received: no cutoff"
            )
        tail = (1.0 - coverage) / 2
        _check_source(source, prediction)
        levels = (tail, 1.0 - tail)
        low, high = _QUANTILES[source](prediction, levels)
        return Core(low, high, np.ones_like(low))

    def _prepare(self, prediction: RegressionPrediction) -> None:
        self.fitted_source = self.source or _source(prediction)

    def _get_fitted(self) -> dict[str, Any]:
        return {**super()._get_fitted(), "fitted_source": self.fitted_source}

    def _set_fitted(self, fitted: dict[str, Any]) -> None:
        super()._set_fitted(fitted)
        self.fitted_source = fitted["fitted_source"]


def _source(prediction: RegressionPrediction) -> str:
    if not prediction.has_samples:
        return "gaussian"
    variances = prediction.sample_variances
    known = variances is not None and _are_positive(variances, prediction)
    return "mixture" if known else "samples"


def _are_positive(variances: Any, prediction: RegressionPrediction) -> bool:
    """Returns whether the variances of all targets that count are positive."""
    positive = np.asarray(variances) > 0
    if prediction.mask is not None:
        positive = positive | ~prediction.mask
    return bool(np.all(positive))


def _check_source(source: str, prediction: RegressionPrediction) -> None:
    needs = {
        "mixture": "kept samples and the variance of the noise",
        "samples": "kept samples",
        "gaussian": "a positive variance",
    }[source]
    if source == "gaussian":
        fits = _are_positive(prediction.known_variance, prediction)
    else:
        fits = prediction.has_samples and (
            source == "samples" or _source(prediction) == "mixture"
        )
    if not fits:
        raise ValueError(
            f"`prediction` must have {needs}, as the quantiles of {source!r} "
            "do. Call `keras_bdl.predict(..., keep_samples=True)` in the same "
            "way for `fit` and later, or choose another `source`. Received: "
            f"{prediction!r}"
        )


def _gaussian_quantiles(
    prediction: RegressionPrediction, levels: Sequence[float]
) -> list:
    from scipy.special import ndtri

    mean = np.asarray(prediction.mean, "float64")
    stddev = np.sqrt(np.asarray(prediction.known_variance, "float64"))
    return [mean + stddev * ndtri(level) for level in levels]


def _sample_quantiles(
    prediction: RegressionPrediction, levels: Sequence[float]
) -> list:
    samples = np.asarray(prediction.samples, "float64")
    return list(np.quantile(samples, levels, axis=0))


def _mixture_quantiles(
    prediction: RegressionPrediction, levels: Sequence[float]
) -> list:
    from scipy.special import ndtri

    means = np.asarray(prediction.samples, "float64")
    stddev = np.sqrt(np.asarray(prediction.sample_variances, "float64"))
    # Deviations are positive, except perhaps in padding.
    stddev = np.broadcast_to(np.where(stddev > 0, stddev, 1.0), means.shape)
    found: list[Any] = []
    for level in levels:
        # The quantile of a mixture is between those of its components.
        own = means + stddev * ndtri(level)
        found.append(_root(means, stddev, level, own.min(0), own.max(0)))
    return found


def _root(
    means: np.ndarray,
    stddev: np.ndarray,
    level: float,
    low: np.ndarray,
    high: np.ndarray,
) -> np.ndarray:
    """Returns the quantile of each mixture, by Newton steps in a bracket."""
    from scipy.special import ndtr

    x = low + (high - low) / 2
    for _ in range(MOST_STEPS):
        z = (x - means) / stddev
        excess = ndtr(z).mean(0) - level
        density = (np.exp(-0.5 * z**2) / stddev).mean(0) / np.sqrt(2 * np.pi)
        low, high = np.where(excess < 0, x, low), np.where(excess < 0, high, x)
        step = excess / np.maximum(density, 1e-300)
        inside = (low < x - step) & (x - step < high)
        new = np.where(inside, x - step, low + (high - low) / 2)
        moved, x = np.abs(new - x), new
        if np.all(moved <= 4 * np.finfo("float64").eps * np.abs(x)):
            break
    return x


_QUANTILES = {
    "gaussian": _gaussian_quantiles,
    "mixture": _mixture_quantiles,
    "samples": _sample_quantiles,
}
