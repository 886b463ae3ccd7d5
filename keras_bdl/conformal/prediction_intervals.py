"""Intervals of real targets, one for each predicted value."""

from typing import Any

import numpy as np

from keras_bdl.aliases import ArrayLike
from keras_bdl.conformal.coverage_report import CoverageReport
from keras_bdl.data.checked_inputs import labels_of
from keras_bdl.data.checked_inputs import targets
from keras_bdl.prediction import RegressionPrediction


class PredictionIntervals:
    """Closed intervals of real targets, one for each predicted value.

    A conformal method returns this object. An interval is empty if its lower
    end is above its upper end.

    Args:
        method: The fitted method.
        prediction: The prediction.
        lower: Lower ends, in the shape of the predictive mean.
        upper: Upper ends, in the same shape.

    Attributes:
        method: The fitted method.
        prediction: The prediction.
        lower: Lower ends, in the shape of the predictive mean.
        upper: Upper ends, in the same shape.

    Example:

    ```python
    p = keras_bdl.prediction.RegressionPrediction(
        np.zeros(100), variance_within=np.ones(100)
    )
    targets = np.random.default_rng(0).normal(size=100)
    conformal = keras_bdl.conformal.NormalizedResiduals().fit(p, targets)
    intervals = conformal(p)
    intervals.lower, intervals.upper, intervals.evaluate(targets).coverage
    ```
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

        Args:
            y: Targets. Defaults to `None`, the targets that the prediction
                found in its data.
        """
        y = targets(labels_of(self.prediction, y), self.lower.shape)
        return (self.lower <= y) & (y <= self.upper)

    def evaluate(self, y: ArrayLike | None = None) -> CoverageReport:
        """Returns coverage and widths, in total, by width and by target.

        The targets of an example depend on each other. With several targets,
        only each target has intervals of its coverage, unless the method is
        `joint`: an example is then covered if all its targets are.

        Args:
            y: Targets. Defaults to `None`, the targets that the prediction
                found in its data.
        """
        rows = len(self)
        y = targets(labels_of(self.prediction, y), self.lower.shape)
        covered: Any = self.contains(y).reshape(rows, -1)
        widths: Any = self._widths().reshape(rows, -1)
        if getattr(self.method, "joint", False):
            # The guarantee is for all targets of an example together.
            covered, widths = np.asarray(covered.all(1)), widths.mean(1)
        count = covered.size // rows
        return CoverageReport.from_arrays(
            self.method,
            y,
            covered.ravel(),
            np.where(widths < 0, -1.0, widths).ravel(),
            full=np.isposinf(widths).ravel(),
            groups=np.tile(np.arange(count), len(widths)),
            num_groups=count,
        )

    def __len__(self) -> int:
        return len(self.lower)

    def __repr__(self) -> str:
        return f"PredictionIntervals({len(self)} rows by {self.method!r})"

    def _widths(self):
        # Minus infinity for empty intervals from +inf to -inf.
        return self.upper - self.lower
