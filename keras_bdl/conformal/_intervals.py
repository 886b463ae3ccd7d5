"""Intervals of real targets, and the base of the methods for them."""

import abc
import copy
import warnings
from typing import Any
from typing import NamedTuple
from typing import Self

import numpy as np

from keras_bdl._aliases import ArrayLike
from keras_bdl._arguments import check_bool
from keras_bdl._data._checked_inputs import labels_of
from keras_bdl._data._checked_inputs import numbers
from keras_bdl._data._checked_inputs import targets
from keras_bdl.conformal._conformal import Conformal
from keras_bdl.conformal._conformal import Cutoff
from keras_bdl.conformal._conformal import check_coverage
from keras_bdl.conformal._conformal import check_task
from keras_bdl.conformal._conformal import least_count
from keras_bdl.conformal._coverage_report import CoverageReport
from keras_bdl.prediction import RegressionPrediction


class Core(NamedTuple):
    """The part of an interval that calibration widens or narrows.

    Attributes:
        low: Lower end of the core.
        high: Upper end of the core.
        scale: Unit in which the interval grows.
    """

    low: np.ndarray
    high: np.ndarray
    scale: np.ndarray


class IntervalPredictor(Conformal):
    """Base of conformal methods that return intervals.

    A subclass defines the core [low, high] of each interval and its scale s:

        score of y = max(low - y, y - high) / s                           (1)
        interval = [low - s * cutoff, high + s * cutoff]                  (2)
    """

    target_shape: Any = None

    def __init__(self, *, joint: bool = False):
        self.joint = check_bool("joint", joint)

    def fit(
        self,
        prediction: RegressionPrediction,
        y: ArrayLike | None = None,
        *,
        coverage: float = 0.9,
    ) -> Self:
        """Finds the cutoff for a coverage.

        Args:
            prediction: Prediction for data that were not used in training.
            y: Targets. Defaults to `None`, the targets that the prediction
                found in its data.
            coverage: Share of new targets that the intervals must contain,
                between 0 and 1. Defaults to `0.9`.

        Returns:
            This object.
        """
        coverage = check_coverage(coverage)
        check_task("prediction", prediction, "regression")
        # A failed `fit` leaves this object as it was.
        fitted = copy.copy(self)
        fitted.coverage = coverage
        fitted.target_shape = tuple(prediction.mean.shape[1:])
        fitted._prepare(prediction)
        scores = fitted.scores(prediction, y)
        if self.joint:
            cutoff = Cutoff.of(_counted(scores), coverage)
        else:
            columns = scores.reshape(len(scores), -1).T
            cutoff = Cutoff.joined(
                [Cutoff.of(_counted(c), coverage) for c in columns],
                fitted.target_shape,
            )
        fitted.cutoff = cutoff
        vars(self).update(vars(fitted))
        if np.any(cutoff.infinite):
            least = int(np.min(cutoff.counts))
            warnings.warn(
                f"Coverage {coverage:g} is only kept by infinite intervals: "
                f"{least} calibration targets are fewer than the "
                f"{least_count(coverage)} that are needed.",
                stacklevel=2,
            )
        return self

    def __call__(
        self, prediction: RegressionPrediction
    ) -> "PredictionIntervals":
        """Returns an interval for each predicted value."""
        cutoff = self.fitted_cutoff().values
        lower, upper = self.bounds(prediction, cutoff)
        return PredictionIntervals(self, prediction, lower, upper)

    def scores(
        self,
        prediction: RegressionPrediction,
        y: ArrayLike | None = None,
        *,
        first_row: int = 0,
    ) -> np.ndarray:
        """Returns how badly each target fits its prediction, (1).

        The score is NaN in padding. With `joint`, the score of an example is
        that of its targets that count.
        """
        del first_row
        core = self._core(prediction)
        mask = prediction.mask
        y = targets(labels_of(prediction, y), core.low.shape, mask)
        scores = np.maximum(core.low - y, y - core.high) / core.scale  # (1)
        if mask is not None:
            scores = np.where(mask, scores, np.nan)
        if self.joint:
            # `fmax` skips NaN.
            scores = np.fmax.reduce(scores.reshape(len(scores), -1), axis=1)
        return scores

    def sets_at(
        self,
        prediction: RegressionPrediction,
        cutoffs: np.ndarray,
        *,
        first_row: int = 0,
        owner: Any = None,
    ) -> "PredictionIntervals":
        """Returns the intervals with a given cutoff for each row."""
        del first_row
        axes = np.ndim(prediction.mean) - 1
        cutoffs = np.reshape(cutoffs, (-1, *[1] * axes))
        lower, upper = self.bounds(prediction, cutoffs)
        return PredictionIntervals(owner or self, prediction, lower, upper)

    def bounds(
        self, prediction: RegressionPrediction, cutoff: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Returns the lower and upper ends of the intervals, (2)."""
        core = self._core(prediction)
        reach = core.scale * cutoff
        # Rounded outwards: a target whose score is the cutoff stays inside.
        slack = np.where(np.isfinite(reach), np.abs(reach), 0.0)
        unit = 4 * np.finfo("float64").eps
        lower = core.low - reach - unit * (np.abs(core.low) + slack)
        upper = core.high + reach + unit * (np.abs(core.high) + slack)
        return lower, upper

    @abc.abstractmethod
    def core(self, prediction: RegressionPrediction) -> Core:
        """Returns the core of each interval, arrays in float64."""

    def _core(self, prediction: RegressionPrediction) -> Core:
        check_task("prediction", prediction, "regression")
        shape = tuple(np.shape(prediction.mean)[1:])
        if self.target_shape not in (None, shape):
            raise ValueError(
                "`prediction` must have the targets of `fit`. Received: "
                f"targets of shape {shape}, and {self.target_shape} in `fit`"
            )
        names = ("prediction.mean", "prediction.mean", "prediction.variance")
        core = self.core(prediction)
        if prediction.mask is not None:
            # Padding may hold anything.
            core = Core(
                *(
                    np.where(prediction.mask | np.isfinite(part), part, other)
                    for part, other in zip(core, (0.0, 0.0, 1.0), strict=True)
                )
            )
        return Core(*map(numbers, names, core))

    def _prepare(self, prediction: Any) -> None:
        """Chooses what the core depends on, before the scores."""

    def _get_fitted(self) -> dict[str, Any]:
        shape = list(self.target_shape)
        return {**super()._get_fitted(), "target_shape": shape}

    def _set_fitted(self, fitted: dict[str, Any]) -> None:
        super()._set_fitted(fitted)
        self.target_shape = tuple(fitted["target_shape"])


class NormalizedResiduals(IntervalPredictor):
    """Symmetric intervals in units of the predictive standard deviation.

    Use this method for the intervals of a regression. With m the predictive
    mean and s the predictive standard deviation,

        score of y = |y - m| / s                                          (1)
        interval = [m - s * cutoff, m + s * cutoff]                       (2)

    The coverage has the guarantee of `keras_bdl.extend.Conformal`.

    Args:
        normalized: Whether to divide by s. Otherwise all intervals have the
            same width. Defaults to `True`.
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
    conformal = keras_bdl.conformal.NormalizedResiduals().fit(p, targets)
    conformal(p).upper
    ```

    Reference:
        - [Lei et al., 2018](https://arxiv.org/abs/1604.04173), section 5.2
    """

    def __init__(self, *, normalized: bool = True, joint: bool = False):
        super().__init__(joint=joint)
        self.normalized = check_bool("normalized", normalized)

    def core(self, prediction: RegressionPrediction) -> Core:
        """Returns the mean twice, and the standard deviation."""
        mean = np.asarray(prediction.mean, "float64")
        scale = np.ones_like(mean)
        if self.normalized:
            variance = np.asarray(prediction.known_variance, "float64")
            scale = np.sqrt(np.broadcast_to(variance, mean.shape))
            if prediction.mask is not None:
                # The spread in padding does not count, and may be 0.
                scale = np.where(prediction.mask | (scale > 0), scale, 1.0)
            if not scale.min() > 0 and not np.isnan(scale).any():
                raise ValueError(
                    "`prediction.stddev` must be positive. Compile the model "
                    "with `keras_bdl.likelihoods.Gaussian`, average several "
                    "samples, or use `normalized=False`. Received: a smallest "
                    f"standard deviation of {scale.min():g}"
                )
        return Core(mean, mean, scale)


class PredictionIntervals:
    """Closed intervals of real targets, one for each predicted value.

    A conformal method returns this object. An interval is empty if its lower
    end is above its upper end.

    Attributes:
        method: The fitted method.
        prediction: The prediction.
        lower: Lower ends, in the shape of the predictive mean.
        upper: Upper ends, in the same shape.
    """

    def __init__(
        self,
        method: Any,
        prediction: RegressionPrediction,
        lower: np.ndarray,
        upper: np.ndarray,
    ):
        self.method = method
        self.prediction = prediction
        self.lower = lower
        self.upper = upper

    @property
    def sizes(self) -> np.ndarray:
        """Width of each interval, zero if it is empty."""
        return np.maximum(self._widths(), 0.0)

    def contains(self, y: ArrayLike | None = None) -> np.ndarray:
        """Returns whether each interval contains its target.

        The result is `False` in padding.

        Args:
            y: Targets. Defaults to `None`, the targets that the prediction
                found in its data.
        """
        y, kept = self._targets(y)
        return (self.lower <= y) & (y <= self.upper) & kept

    def evaluate(self, y: ArrayLike | None = None) -> CoverageReport:
        """Returns coverage and widths, in total, by width and by target.

        The targets of an example depend on each other. With several targets,
        only each target has intervals of its coverage, unless the method is
        `joint`: an example is then covered if all its targets are. Padding does
        not count.

        Args:
            y: Targets. Defaults to `None`, the targets that the prediction
                found in its data.
        """
        rows = len(self)
        y, whole = self._targets(y)
        covered: Any = self.contains(y).reshape(rows, -1)
        widths: Any = self._widths().reshape(rows, -1)
        kept: Any = whole.reshape(rows, -1)
        if getattr(self.method, "joint", False):
            # The guarantee is for all targets of an example together.
            covered = (covered | ~kept).all(1)[:, None]
            number = np.maximum(kept.sum(1), 1)
            widths = (
                np.where(kept, widths, 0.0).sum(1)[:, None] / number[:, None]
            )
            kept = kept.any(1)[:, None]
        widths = np.where(widths < 0, -1.0, widths)[kept]
        example, group = np.nonzero(kept)
        return CoverageReport.from_arrays(
            self.method,
            y[whole],
            covered[kept],
            widths,
            full=np.isposinf(widths),
            groups=group,
            num_groups=kept.shape[1],
            example=example,
        )

    def __len__(self) -> int:
        return len(self.lower)

    def __repr__(self) -> str:
        return f"PredictionIntervals({len(self)} rows by {self.method!r})"

    def _targets(self, y: ArrayLike | None) -> tuple[np.ndarray, np.ndarray]:
        """Returns the targets, and whether each counts."""
        mask = self.prediction.mask
        y = targets(labels_of(self.prediction, y), self.lower.shape, mask)
        kept = np.ones(y.shape, bool) if mask is None else mask
        if not kept.any():
            raise ValueError(
                "`prediction` must have a target that counts. Received: "
                f"{kept.size} targets, which a mask leaves out"
            )
        return y, kept

    def _widths(self) -> np.ndarray:
        # Minus infinity for empty intervals from +inf to -inf.
        return self.upper - self.lower


def _counted(scores: np.ndarray) -> np.ndarray:
    """Returns the scores of the targets that count, which are not NaN."""
    return scores[~np.isnan(scores)]
