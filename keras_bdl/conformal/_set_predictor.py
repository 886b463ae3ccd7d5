"""Base class of conformal methods for classifiers."""

import abc
import copy
import warnings
from collections.abc import Iterator
from typing import Any
from typing import Self

import numpy as np

from keras_bdl._aliases import ArrayLike
from keras_bdl._arguments import check_bool
from keras_bdl._arguments import check_count
from keras_bdl._data._checked_inputs import probabilities
from keras_bdl._data._checked_inputs import row_blocks
from keras_bdl.conformal._conformal import Conformal
from keras_bdl.conformal._conformal import check_coverage
from keras_bdl.conformal._conformal import check_task
from keras_bdl.conformal._cutoff import Cutoff
from keras_bdl.conformal._cutoff import least_count
from keras_bdl.conformal._prediction_sets import PredictionSets
from keras_bdl.prediction import ClassificationPrediction
from keras_bdl.prediction._predictions import labelled_entries


class SetPredictor(Conformal):
    """Base of conformal methods that return sets of classes.

    A subclass defines the score of each class of a row, and may define a
    faster way to the score of one class and to the size of a set. Memory does
    not grow with the number of rows, apart from a few numbers per row.

    Args:
        per_class: Whether every class has a cutoff of its own, found from the
            calibration data with this label (Mondrian). The coverage then
            holds for each class. A class with too few labels is in every set.
            Defaults to `False`.
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
        self._warn_of_whole_sets()
        return self

    def __call__(
        self, prediction: ClassificationPrediction, *, first_row: int = 0
    ) -> PredictionSets:
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

        Args:
            prediction: A prediction.
            y: Labels. Defaults to `None`, those in the prediction.
            first_row: Number of rows before this prediction, also those of the
                calibration. Defaults to `0`.
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
    ) -> PredictionSets:
        """Returns the sets with a given cutoff for each row.

        Args:
            prediction: A prediction.
            cutoffs: Largest score in the set of each row.
            first_row: Number of rows before this prediction, also those of the
                calibration. Defaults to `0`.
            owner: The object whose name reports show. Defaults to `None`, this
                object.
        """
        self.check_prediction(prediction)
        keys = self.draw_keys(first_row, len(prediction.log_mean))
        return PredictionSets(self, prediction, keys, cutoffs, owner=owner)

    def check_prediction(self, prediction: Any) -> None:
        """Raises an error unless the method can use a prediction.

        Args:
            prediction: The argument.
        """
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
        """Yields slices of rows and their log probabilities, checked.

        Args:
            prediction: A prediction that `check_prediction` accepts.
        """
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
        """Returns the score of every class, in the shape of `log_probs`.

        Args:
            log_probs: Log probabilities of a block of rows.
            keys: Uniform random number of each row, or ones.
        """

    def label_scores(
        self, log_probs: np.ndarray, keys: np.ndarray, y: np.ndarray
    ) -> np.ndarray:
        """Returns the column `y` of `class_scores`, to the last bit.

        Args:
            log_probs: Log probabilities of a block of rows.
            keys: Uniform random number of each row, or ones.
            y: Label of each row.
        """
        scores = self.class_scores(log_probs, keys)
        return np.take_along_axis(scores, y[:, None], axis=-1)[:, 0]

    def sizes(
        self, log_probs: np.ndarray, keys: np.ndarray, limits: np.ndarray
    ) -> np.ndarray:
        """Returns the number of classes with a score of at most the limit.

        Args:
            log_probs: Log probabilities of a block of rows.
            keys: Uniform random number of each row, or ones.
            limits: Limits, `(rows, 1)` or `(rows, classes)`.
        """
        return (self.class_scores(log_probs, keys) <= limits).sum(-1)

    def draw_keys(self, first: int, count: int) -> np.ndarray:
        """Returns the random numbers of rows, or ones without randomness.

        Args:
            first: Number of rows before these.
            count: Number of rows.
        """
        del first
        return np.ones(count)

    def counted(
        self, prediction: ClassificationPrediction, y: ArrayLike | None
    ) -> tuple[ClassificationPrediction, np.ndarray]:
        """Returns the rows that count, and their labels.

        Args:
            prediction: A prediction, which is checked.
            y: Labels, or `None` for those in the prediction.
        """
        self.check_prediction(prediction)
        counted = labelled_entries(prediction, y)
        return counted.prediction, counted.y

    def _label_scores(self, prediction, y, keys):
        scores = np.empty(len(y))
        for rows, block in self.blocks(prediction):
            scores[rows] = self.label_scores(block, keys[rows], y[rows])
        return scores

    def _get_fitted(self):
        return {**super()._get_fitted(), "num_classes": self.num_classes}

    def _set_fitted(self, fitted):
        super()._set_fitted(fitted)
        self.num_classes = fitted["num_classes"]

    def _warn_of_whole_sets(self):
        cutoff, least = self.cutoff, least_count(self.coverage)
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
            f"Coverage {self.coverage:g} is only kept by sets with every "
            f"class: {what}",
            stacklevel=3,
        )
