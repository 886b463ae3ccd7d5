"""Intervals of real targets, one for each predicted value."""

from typing import Any

import numpy as np

from keras_bdl._aliases import ArrayLike
from keras_bdl._data._checked_inputs import labels_of
from keras_bdl._data._checked_inputs import targets
from keras_bdl.conformal._coverage_report import CoverageReport
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
        kept = whole.reshape(rows, -1)
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

    def _targets(self, y):
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

    def _widths(self):
        # Minus infinity for empty intervals from +inf to -inf.
        return self.upper - self.lower
