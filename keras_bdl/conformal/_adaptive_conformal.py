"""Adaptive conformal inference for data that drift over time."""

import bisect
import collections
import math
from collections.abc import Mapping
from typing import Any
from typing import Self

import numpy as np

from keras_bdl._aliases import ArrayLike
from keras_bdl._arguments import check_count
from keras_bdl._arguments import check_number
from keras_bdl.conformal._conformal import Conformal
from keras_bdl.conformal._conformal import SavedMethod
from keras_bdl.conformal._conformal import check_coverage
from keras_bdl.conformal._conformal import from_state


class AdaptiveConformal(SavedMethod):
    """Sets whose level follows a series of data that drift over time.

    Use this class around another method if the data arrive in order and their
    distribution changes. With a = 1 - coverage, a_t the miss rate that step t
    aims at, and e_t = 1 if the set of step t misses its target,

        set at step t = {targets with a score <= cutoff at level 1 - a_t}  (1)
        a_(t+1) = a_t + step_size * (a - e_t),   a_1 = a                   (2)

    The cutoff in (1) is that of all scores seen so far, or of the last
    `window` ones. The set is infinite at a level of 1 or more, and empty at a
    level of 0 or less.

    For any data whatsoever, after T steps,

        |share of misses - a| <= (max(a, 1 - a) + step_size)
                                 / (T * step_size)                         (3)

    This is a statement on the whole series, not on a single step.

    Args:
        method: The method with the scores, such as `LAC()` or
            `NormalizedResiduals()`. `fit` fits this object.
        step_size: Speed of the adaptation, gamma in the paper. Defaults to
            `0.005`.
        window: Number of latest scores that determine the cutoff. Defaults to
            `None`, all scores.

    Example:

    ```python
    method = keras_bdl.conformal.LAC()
    adaptive = keras_bdl.conformal.AdaptiveConformal(method, step_size=0.01)
    adaptive.fit(prediction, y, coverage=0.9)
    now = keras_bdl.predict(model, x_test)
    adaptive(now).sizes  # before the labels are known
    sets = adaptive.update(now, y_test)
    adaptive.level, sets.evaluate(y_test).coverage
    ```

    Reference:
        - [Gibbs and Candes, 2021](https://arxiv.org/abs/2106.00170), eq. 2 and
          proposition 4.1
    """

    coverage: float | None = None
    cutoff: None = None  # no single one

    def __init__(
        self,
        method: Conformal,
        *,
        step_size: float = 0.005,
        window: int | None = None,
    ):
        if not isinstance(method, Conformal):
            raise ValueError(
                "`method` must be a conformal method with a cutoff, such as "
                "`keras_bdl.conformal.LAC()`. "
                f"Received: method={method!r}"
            )
        if getattr(method, "per_class", False):
            raise ValueError(
                "`method` must have one cutoff. Use `per_class=False`. "
                f"Received: method={method!r}"
            )
        if window is not None:
            check_count("window", window)
        self.method = method
        self.step_size = check_number("step_size", step_size, above=0.0)
        self.window = window
        self._recent: collections.deque[float] = collections.deque()
        self._sorted: list[float] = []
        self._levels: list[float] = []
        self._rows = 0

    def fit(
        self,
        prediction: Any,
        y: ArrayLike | None = None,
        *,
        coverage: float = 0.9,
    ) -> Self:
        """Starts a series with the scores of calibration data.

        Args:
            prediction: Prediction for data that were not used in training, in
                the order of time.
            y: Labels or targets. Defaults to `None`, those that the
                prediction found in its data.
            coverage: Share of the series that the sets must contain, between
                0 and 1. Defaults to `0.9`.

        Returns:
            This object.
        """
        coverage = check_coverage(coverage)
        self.method.fit(prediction, y, coverage=coverage)
        scores = self._scores(prediction, y, 0)
        self.coverage, self._rows = coverage, len(scores)
        scores = [score for score in scores if not math.isnan(score)]
        self._recent = collections.deque(scores, maxlen=self.window)
        self._sorted = sorted(self._recent)
        self._levels = [coverage]
        return self

    @property
    def joint(self) -> bool:
        """Whether the sets hold all targets of an example together."""
        return getattr(self.method, "joint", False)

    @property
    def level(self) -> float:
        """The level 1 - a_t of the next step."""
        self._check_fitted()
        return self._levels[-1]

    @property
    def levels(self) -> np.ndarray:
        """The level 1 - a_t of every step so far and of the next."""
        self._check_fitted()
        return np.array(self._levels)

    def bound(self) -> float:
        """Returns the right side of (3), infinite before the first step."""
        a, steps = 1.0 - self._check_fitted(), len(self._levels) - 1
        reach = max(a, 1.0 - a) + self.step_size
        return reach / (steps * self.step_size) if steps else math.inf

    def __call__(self, prediction: Any) -> Any:
        """Returns the sets of a prediction at the level of the next step.

        Args:
            prediction: A prediction of the model that `fit` received.
        """
        self._check_fitted()
        return self._sets(prediction, np.full(len(prediction), self._cutoff()))

    def update(self, prediction: Any, y: ArrayLike | None = None) -> Any:
        """Takes one step for each row that counts, in order.

        Args:
            prediction: A prediction of the model that `fit` received.
            y: Labels or targets. Defaults to `None`, those that the
                prediction found in its data.

        Returns:
            The set that each row had before its own target was known.
        """
        coverage = self._check_fitted()
        cutoffs = []
        for score in self._scores(prediction, y, self._rows):
            cutoffs.append(self._cutoff())
            if math.isnan(score):
                continue  # padding
            missed = score > cutoffs[-1]
            # A miss raises the level 1 - a_t.
            change = self.step_size * (missed - (1.0 - coverage))  # (2)
            self._levels.append(self._levels[-1] + change)
            self._add(score)
        sets = self._sets(prediction, np.array(cutoffs))
        self._rows += len(cutoffs)
        return sets

    def _cutoff(self) -> float:
        """Returns the largest score in the set of the next step."""
        count = len(self._sorted)
        # The sum of many steps is off by rounding; an integer stays one.
        k = math.ceil((count + 1) * self._levels[-1] - 1e-9)
        if k > count:
            return math.inf
        return self._sorted[k - 1] if k > 0 else -math.inf

    def _add(self, score: float) -> None:
        if len(self._recent) == self.window:
            oldest = bisect.bisect_left(self._sorted, self._recent[0])
            del self._sorted[oldest]
        self._recent.append(score)
        bisect.insort(self._sorted, score)

    def _scores(
        self, prediction: Any, y: ArrayLike | None, first_row: int
    ) -> list[float]:
        scores = self.method.scores(prediction, y, first_row=first_row)
        if scores.size != len(scores):
            raise ValueError(
                "`prediction` must have one target for each example. Use "
                "`joint=True` for several. Received: scores of shape "
                f"{scores.shape}"
            )
        return scores.ravel().tolist()

    def _sets(self, prediction: Any, cutoffs: np.ndarray) -> Any:
        return self.method.sets_at(
            prediction, cutoffs, first_row=self._rows, owner=self
        )

    def _check_fitted(self) -> float:
        if self.coverage is None:
            raise RuntimeError(
                "`AdaptiveConformal` is not fitted yet. Call "
                "`fit(prediction, y)` with held-out data. Received: no scores"
            )
        return self.coverage

    def get_config(self) -> dict[str, Any]:
        """Returns every constructor argument, the method as its state."""
        return {**super().get_config(), "method": self.method.get_state()}

    @classmethod
    def _arguments(
        cls, config: dict[str, Any], custom_objects: Mapping[str, Any]
    ) -> dict[str, Any]:
        method = from_state(config["method"], custom_objects)
        return {**config, "method": method}

    def _get_fitted(self) -> dict[str, Any]:
        return {
            "coverage": self._check_fitted(),
            "recent": np.array(self._recent),
            "levels": np.array(self._levels),
            "rows": self._rows,
        }

    def _set_fitted(self, fitted: dict[str, Any]) -> None:
        self.coverage, self._rows = fitted["coverage"], fitted["rows"]
        recent = fitted["recent"].tolist()
        self._recent = collections.deque(recent, maxlen=self.window)
        self._sorted = sorted(self._recent)
        self._levels = fitted["levels"].tolist()
