"""Sets of classes, one for each row of a prediction."""

import operator
from collections.abc import Callable
from collections.abc import Iterator
from typing import Any

import numpy as np

from keras_bdl._aliases import ArrayLike
from keras_bdl._memory import check_memory
from keras_bdl.conformal._coverage_report import CoverageReport
from keras_bdl.prediction import ClassificationPrediction
from keras_bdl.prediction._predictions import labelled_entries


class PredictionSets:
    """Sets of classes, one for each row of a prediction.

    A conformal method returns this object. It computes sets when they are
    read, in blocks of rows, so that its memory is that of the prediction.

    Args:
        method: The fitted method.
        prediction: The prediction.
        keys: Random number of each row.
        limits: Function of the keys of a block that returns the largest score
            inside each set, `(rows, 1)` or `(rows, classes)`; or an array with
            one limit for each row.
        owner: The object whose name reports show. Defaults to `None`, the
            method.

    Attributes:
        method: The fitted method.
        prediction: The prediction.

    Example:

    ```python
    sets = keras_bdl.conformal.LAC().fit(prediction, y)(prediction)
    sets.sizes, sets[0], sets.contains(y)
    ```
    """

    def __init__(
        self,
        method: Any,
        prediction: ClassificationPrediction,
        keys: np.ndarray,
        limits: Callable[[np.ndarray], np.ndarray] | np.ndarray,
        *,
        owner: Any = None,
    ):
        self.method = method
        self._owner = method if owner is None else owner
        self.prediction = prediction
        self._keys = keys
        self._limits = limits
        self._sizes: np.ndarray | None = None

    @property
    def sizes(self) -> np.ndarray:
        """Number of classes in each set."""
        if self._sizes is None:
            self._sizes, _ = self._scan(None)
        return self._sizes

    @property
    def membership(self) -> np.ndarray:
        """Whether each class is in each set, `(rows, classes)`."""
        shape = self.prediction.log_mean.shape
        check_memory(
            "The membership of all sets",
            shape[0] * shape[1],
            "Read `blocks()`, which yields some rows at a time.",
        )
        whole = np.empty(shape, bool)
        for rows, block in self.blocks():
            whole[rows] = block
        return whole

    def blocks(self) -> Iterator[tuple[slice, np.ndarray]]:
        """Yields slices of rows, and `membership` of these rows."""
        for rows, log_probs in self.method.blocks(self.prediction):
            scores = self.method.class_scores(log_probs, self._keys[rows])
            yield rows, scores <= self._limits_of(rows)

    def contains(self, y: ArrayLike | None = None) -> np.ndarray:
        """Returns whether each set contains its label.

        The result is `False` where a row does not count: in padding, or for a
        label that the loss ignores.

        Args:
            y: Labels, integers or one-hot. Defaults to `None`, the labels
                that the prediction found in its data.
        """
        counted = labelled_entries(self.prediction, y)
        return self._scan(counted.labels, sizes=False)[1] & counted.kept

    def evaluate(self, y: ArrayLike | None = None) -> CoverageReport:
        """Returns coverage and sizes, in total, by size and by class.

        Padding and labels that the loss ignores do not count.

        Args:
            y: Labels, integers or one-hot. Defaults to `None`, the labels
                that the prediction found in its data.
        """
        counted = labelled_entries(self.prediction, y)
        self._sizes, covered = self._scan(counted.labels)
        classes = self.prediction.log_mean.shape[1]
        sizes = self._sizes[counted.kept]
        return CoverageReport.from_arrays(
            self._owner,
            counted.y,
            covered[counted.kept],
            sizes,
            full=sizes == classes,
            groups=counted.y,
            num_groups=classes,
            example=counted.example,
        )

    def __getitem__(self, row: int) -> np.ndarray:
        """Returns the classes in the set of one row."""
        try:
            row = operator.index(row)
        except TypeError:
            raise TypeError(
                "The row of a set must be an integer. Read several sets from "
                f"`membership` or `blocks()`. Received: {row!r}"
            ) from None
        row = range(len(self))[row]
        keys = self._keys[row : row + 1]
        log_probs = self.prediction.log_mean[row : row + 1]
        scores = self.method.class_scores(log_probs, keys)
        inside = scores <= self._limits_of(slice(row, row + 1))
        return np.flatnonzero(inside[0])

    def __len__(self) -> int:
        return len(self.prediction.log_mean)

    def __repr__(self) -> str:
        return f"PredictionSets({len(self)} sets by {self._owner!r})"

    def _limits_of(self, rows):
        if callable(self._limits):
            return self._limits(self._keys[rows])
        return self._limits[rows, None]

    def _scan(self, y, sizes=True):
        """Returns the sizes and whether labels are inside, in one pass."""
        found = np.empty(len(self), "int64") if sizes else None
        covered = None if y is None else np.empty(len(self), bool)
        for rows, log_probs in self.method.blocks(self.prediction):
            keys, limits = self._keys[rows], self._limits_of(rows)
            if found is not None:
                found[rows] = self.method.sizes(log_probs, keys, limits)
            if covered is not None:
                labels = y[rows]
                scores = self.method.label_scores(log_probs, keys, labels)
                if limits.shape[-1] > 1:
                    limits = np.take_along_axis(limits, labels[:, None], -1)
                covered[rows] = scores <= limits[:, 0]
        return found, covered
