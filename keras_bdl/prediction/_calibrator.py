"""Base class and functions of calibrations of finished predictions."""

import abc
from typing import Self

import numpy as np

from keras_bdl._aliases import ArrayLike
from keras_bdl._data._checked_inputs import check_classification
from keras_bdl._data._checked_inputs import log_probabilities
from keras_bdl.prediction._classification_prediction import (
    ClassificationPrediction,
)
from keras_bdl.prediction._counted_entries import labelled_entries


class Calibrator(abc.ABC):
    """Base of calibrations that are fitted to held-out predictions.

    A subclass defines `_fit` and `_calibrated`.
    """

    def fit(
        self, prediction: ClassificationPrediction, y: ArrayLike | None = None
    ) -> Self:
        """Fits the calibration to held-out data.

        Args:
            prediction: Prediction for data that were not used in training.
            y: Labels, integers or one-hot. Defaults to `None`, the labels
                that the prediction found in its data.

        Returns:
            This object.
        """
        counted = labelled_entries(prediction, y)
        log_probs = log_probabilities("prediction", counted.prediction)
        self._fit(log_probs, counted.y)
        return self

    def __call__(
        self, prediction: ClassificationPrediction
    ) -> ClassificationPrediction:
        """Returns the prediction with calibrated probabilities.

        Args:
            prediction: A prediction of the same model as the prediction that
                `fit` received.
        """
        check_classification("prediction", prediction)
        log_q = self._calibrated(prediction)
        return ClassificationPrediction(
            log_q.astype(prediction.log_mean.dtype),
            y=prediction.y,
            mask=prediction.mask,
            ignore_class=prediction.ignore_class,
        )

    @abc.abstractmethod
    def _fit(self, log_probs: np.ndarray, y: np.ndarray) -> None:
        """Fits the calibration to one row of log probabilities per label."""

    @abc.abstractmethod
    def _calibrated(self, prediction: ClassificationPrediction) -> np.ndarray:
        """Returns the calibrated log probabilities."""


def check_classes(prediction: ClassificationPrediction, fitted: int) -> None:
    """Raises an error unless a prediction has the classes of `fit`.

    Args:
        prediction: The prediction to calibrate.
        fitted: Number of classes in `fit`.
    """
    if prediction.num_classes != fitted:
        raise ValueError(
            "`prediction` must have the classes of `fit`. Received: "
            f"{prediction.num_classes} classes, and {fitted} in `fit`"
        )


def log_softmax(scores: np.ndarray) -> np.ndarray:
    """Returns log probabilities, with the classes on the last axis.

    Args:
        scores: Logarithms of numbers that are proportional to probabilities.
    """
    scores = scores - scores.max(-1, keepdims=True)
    return scores - np.log(np.exp(scores).sum(-1, keepdims=True))
