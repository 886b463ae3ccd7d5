"""Sets of classes, and the base of the methods that return them."""

import abc
import copy
import operator
import warnings
from collections.abc import Callable
from collections.abc import Iterator
from typing import Any
from typing import Self

import numpy as np

from keras_bdl._aliases import ArrayLike
from keras_bdl._arguments import check_bool
from keras_bdl._arguments import check_count
from keras_bdl._data._checked_inputs import probabilities
from keras_bdl._data._checked_inputs import row_blocks
from keras_bdl._memory import check_memory
from keras_bdl.conformal._conformal import Conformal
from keras_bdl.conformal._conformal import Cutoff
from keras_bdl.conformal._conformal import check_coverage
from keras_bdl.conformal._conformal import check_task
from keras_bdl.conformal._conformal import least_count
from keras_bdl.conformal._coverage_report import CoverageReport
from keras_bdl.prediction import ClassificationPrediction
from keras_bdl.prediction._predictions import labelled_entries


class SetPredictor(Conformal):
    """Base of conformal methods that return sets of classes.

    A subclass defines the score of each class of a row, and may define a
    faster way to the score of one class and to the size of a set. Memory does
    not grow with the number of rows, apart from a few numbers per row. A key is
    a uniform random number of a row, or 1 without randomness.
    """

    num_classes: int | None = None

    def __init__(self, *, per_class: bool = False):
        self.per_class = check_bool("per_class", per_class)

    def fit(
        self,
        prediction: ClassificationPrediction,
        y: ArrayLike | None = None,
        *,
        coverage: float = 0.9,
    ) -> Self:
        """Finds the cutoff for a coverage.

        Args:
            prediction: Prediction for data that were not used in training.
            y: Labels, integers or one-hot. Defaults to `None`, the labels
                that the prediction found in its data.
            coverage: Share of new labels that the sets must contain, between
                0 and 1. Defaults to `0.9`.

        Returns:
            This object.
        """
        coverage = check_coverage(coverage)
        # The number of classes may differ from that of an earlier `fit`.
        unfitted = copy.copy(self)
        unfitted.num_classes = None
        prediction, y = unfitted.counted(prediction, y)
        keys = self.draw_keys(0, len(y))
        scores = self._label_scores(prediction, y, keys)
        classes = prediction.num_classes
        if self.per_class:
            order = np.argsort(y, kind="stable")
            ends = np.cumsum(np.bincount(y, minlength=classes))[:-1]
            groups = np.split(order, ends)
            cutoff = Cutoff.joined(
                [Cutoff.of(scores[g], coverage, keys[g]) for g in groups],
                (classes,),
            )
        else:
            cutoff = Cutoff.of(scores, coverage, keys)
        self.coverage, self.cutoff = coverage, cutoff
        self.num_classes = classes
        self._warn_of_whole_sets(coverage, cutoff)
        return self

    def __call__(
        self, prediction: ClassificationPrediction, *, first_row: int = 0
    ) -> "PredictionSets":
        """Returns a set of classes for each row.

        Args:
            prediction: A prediction of the model that `fit` received.
            first_row: Number of rows before this prediction, if the data come
                in several predictions: a randomised method then draws other
                random numbers for each of them. Defaults to `0`.
        """
        cutoff = self.fitted_cutoff()
        self.check_prediction(prediction)
        check_count("first_row", first_row, at_least=0)
        first = first_row + int(cutoff.counts.sum())
        keys = self.draw_keys(first, len(prediction.log_mean))
        return PredictionSets(self, prediction, keys, cutoff.limits)

    def scores(
        self,
        prediction: ClassificationPrediction,
        y: ArrayLike | None = None,
        *,
        first_row: int = 0,
    ) -> np.ndarray:
        """Returns how badly each label fits its prediction.

        The score is NaN where a row does not count: in padding, or for a label
        that the loss ignores.
        """
        self.check_prediction(prediction)
        counted = labelled_entries(prediction, y)
        keys = self.draw_keys(first_row, len(counted.kept))
        scores = np.full(len(counted.kept), np.nan)
        scores[counted.kept] = self._label_scores(
            counted.prediction, counted.y, keys[counted.kept]
        )
        return scores

    def sets_at(
        self,
        prediction: ClassificationPrediction,
        cutoffs: np.ndarray,
        *,
        first_row: int = 0,
        owner: Any = None,
    ) -> "PredictionSets":
        """Returns the sets with a given cutoff for each row."""
        self.check_prediction(prediction)
        keys = self.draw_keys(first_row, len(prediction.log_mean))
        return PredictionSets(self, prediction, keys, cutoffs, owner=owner)

    def check_prediction(self, prediction: Any) -> None:
        """Raises an error unless the method can use a prediction."""
        check_task("prediction", prediction, "classification")
        shape = prediction.log_mean.shape
        if len(shape) != 2:
            raise ValueError(
                "`prediction` must have one row of classes for each example. "
                "For several labels per example, as in segmentation, use "
                "`keras_bdl.conformal.RiskControl`. "
                f"Received: a prediction of shape {shape}"
            )
        if self.num_classes not in (None, shape[-1]):
            raise ValueError(
                "`prediction` must have the classes of `fit`. Received: "
                f"{shape[-1]} classes, and {self.num_classes} in `fit`"
            )

    def blocks(
        self, prediction: ClassificationPrediction
    ) -> Iterator[tuple[slice, np.ndarray]]:
        """Yields slices of rows and their log probabilities, checked."""
        for chosen in row_blocks(*prediction.log_mean.shape):
            block = np.asarray(prediction.log_mean[chosen])
            if block.dtype.itemsize < 4:
                block = block.astype("float32")
            probabilities("prediction.mean", np.exp(block))
            yield chosen, block

    @abc.abstractmethod
    def class_scores(
        self, log_probs: np.ndarray, keys: np.ndarray
    ) -> np.ndarray:
        """Returns the score of every class, in the shape of `log_probs`."""

    def label_scores(
        self, log_probs: np.ndarray, keys: np.ndarray, y: np.ndarray
    ) -> np.ndarray:
        """Returns the column `y` of `class_scores`, to the last bit."""
        scores = self.class_scores(log_probs, keys)
        return np.take_along_axis(scores, y[:, None], axis=-1)[:, 0]

    def sizes(
        self, log_probs: np.ndarray, keys: np.ndarray, limits: np.ndarray
    ) -> np.ndarray:
        """Returns the number of classes with a score of at most the limit."""
        return (self.class_scores(log_probs, keys) <= limits).sum(-1)

    def draw_keys(self, first: int, count: int) -> np.ndarray:
        """Returns the random numbers of rows, or ones without randomness."""
        del first
        return np.ones(count)

    def counted(
        self, prediction: ClassificationPrediction, y: ArrayLike | None
    ) -> tuple[ClassificationPrediction, np.ndarray]:
        """Returns the rows that count, and their labels."""
        self.check_prediction(prediction)
        counted = labelled_entries(prediction, y)
        return counted.prediction, counted.y

    def _label_scores(
        self,
        prediction: ClassificationPrediction,
        y: np.ndarray,
        keys: np.ndarray,
    ) -> np.ndarray:
        scores = np.empty(len(y))
        for rows, block in self.blocks(prediction):
            scores[rows] = self.label_scores(block, keys[rows], y[rows])
        return scores

    def _get_fitted(self) -> dict[str, Any]:
        return {**super()._get_fitted(), "num_classes": self.num_classes}

    def _set_fitted(self, fitted: dict[str, Any]) -> None:
        super()._set_fitted(fitted)
        self.num_classes = fitted["num_classes"]

    def _warn_of_whole_sets(self, coverage: float, cutoff: Cutoff) -> None:
        least = least_count(coverage)
        wrong = int(np.sum(cutoff.infinite))
        if not wrong:
            return
        if self.per_class:
            what = (
                f"{wrong} of {self.num_classes} classes have fewer than "
                f"{least} calibration labels. They are in every set."
            )
        else:
            what = (
                f"{cutoff.counts} calibration labels are fewer than the "
                f"{least} that are needed. Every set holds all classes."
            )
        warnings.warn(
            f"Coverage {coverage:g} is only kept by sets with every "
            f"class: {what}",
            stacklevel=3,
        )


class PredictionSets:
    """Sets of classes, one for each row of a prediction.

    A conformal method returns this object. It computes sets when they are
    read, in blocks of rows, so that its memory is that of the prediction. The
    limits are the largest score inside each set: one for each row, or a
    function from keys to `(rows, 1)` or `(rows, classes)`. Reports show the
    name of the `owner`, the method unless given.

    Attributes:
        method: The fitted method.
        prediction: The prediction.
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

    def _limits_of(self, rows: slice) -> np.ndarray:
        if callable(self._limits):
            return self._limits(self._keys[rows])
        return self._limits[rows, None]

    def _scan(self, y: Any, sizes: bool = True) -> tuple[Any, Any]:
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
