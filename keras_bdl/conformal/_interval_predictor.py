"""Base class of conformal methods for regressions."""

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
from keras_bdl.conformal._conformal import check_coverage
from keras_bdl.conformal._conformal import check_task
from keras_bdl.conformal._conformal import counted_scores
from keras_bdl.conformal._cutoff import Cutoff
from keras_bdl.conformal._cutoff import least_count
from keras_bdl.conformal._prediction_intervals import PredictionIntervals
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

    Args:
        joint: Whether all targets of an example share one cutoff, so that the
            coverage is that of all their intervals together. Otherwise every
            target has a cutoff of its own, and the coverage holds for each
            target. Defaults to `False`.
    """

    target_shape: tuple | None = None

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
            cutoff = Cutoff.of(counted_scores(scores), coverage)
        else:
            columns = scores.reshape(len(scores), -1).T
            cutoff = Cutoff.joined(
                [Cutoff.of(counted_scores(c), coverage) for c in columns],
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

    def __call__(self, prediction: RegressionPrediction) -> PredictionIntervals:
        """Returns an interval for each predicted value.

        Args:
            prediction: A prediction of the model that `fit` received.
        """
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

        Args:
            prediction: A prediction.
            y: Targets. Defaults to `None`, those in the prediction.
            first_row: Without effect: nothing is random. Defaults to `0`.
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
    ) -> PredictionIntervals:
        """Returns the intervals with a given cutoff for each row.

        Args:
            prediction: A prediction.
            cutoffs: Largest score in the interval of each row.
            first_row: Without effect: nothing is random. Defaults to `0`.
            owner: The object whose name reports show. Defaults to `None`, this
                object.
        """
        del first_row
        axes = np.ndim(prediction.mean) - 1
        cutoffs = np.reshape(cutoffs, (-1, *[1] * axes))
        lower, upper = self.bounds(prediction, cutoffs)
        return PredictionIntervals(owner or self, prediction, lower, upper)

    def bounds(
        self, prediction: RegressionPrediction, cutoff: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Returns the lower and upper ends of the intervals, (2).

        Args:
            prediction: A prediction.
            cutoff: Cutoff, broadcastable to the predictive mean.
        """
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
        """Returns the core of each interval, arrays in float64.

        Args:
            prediction: A prediction.
        """

    def _core(self, prediction):
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

    def _get_fitted(self):
        shape = list(self.target_shape)
        return {**super()._get_fitted(), "target_shape": shape}

    def _set_fitted(self, fitted):
        super()._set_fitted(fitted)
        self.target_shape = tuple(fitted["target_shape"])
