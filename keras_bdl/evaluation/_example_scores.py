"""Scores of the single inputs of a classifier."""

import dataclasses

import numpy as np

from keras_bdl._data._checked_inputs import probability_blocks
from keras_bdl.evaluation._calibration import expected_calibration_error
from keras_bdl.evaluation._class_bins import ClassBins
from keras_bdl.prediction import ClassificationPrediction


@dataclasses.dataclass(frozen=True)
class ExampleScores:
    """Scores of every input, from one pass over the probabilities.

    Attributes:
        y: Integer label of each input.
        predicted: Most probable class of each input.
        nll: Negative log probability of the label.
        brier: Brier score of each input.
        log_confidence: Logarithm of the highest probability.
    """

    y: np.ndarray
    predicted: np.ndarray
    nll: np.ndarray
    brier: np.ndarray
    log_confidence: np.ndarray

    @classmethod
    def of(
        cls,
        name: str,
        prediction: ClassificationPrediction,
        y: np.ndarray,
        *,
        bins: ClassBins | None = None,
    ) -> "ExampleScores":
        """Returns the scores of a prediction, which is checked.

        Memory beside the result does not grow with the number of inputs.

        Args:
            name: Name of the argument that holds the prediction.
            prediction: A `ClassificationPrediction`.
            y: Integer labels.
            bins: The function adds all inputs to these bins. Defaults to
                `None`.
        """
        predicted = np.empty(len(y), "int64")
        nll, brier, confidence = (np.empty(len(y)) for _ in range(3))
        for rows, log_p, p in probability_blocks(name, prediction):
            labels = y[rows, None]
            predicted[rows] = log_p.argmax(-1)
            confidence[rows] = log_p.max(-1)
            nll[rows] = -np.take_along_axis(log_p, labels, axis=-1)[:, 0]
            chosen = np.take_along_axis(p, labels, axis=-1)[:, 0]
            brier[rows] = np.einsum("ij,ij->i", p, p) - 2 * chosen + 1
            if bins:
                bins.add(p, y[rows])
        return cls(y, predicted, nll, brier, confidence)

    @property
    def correct(self) -> np.ndarray:
        """Whether the most probable class is the label."""
        return self.predicted == self.y

    @property
    def confidence(self) -> np.ndarray:
        """The highest probability."""
        return np.exp(self.log_confidence)

    def gaps(self, num_bins: int) -> np.ndarray:
        """Returns confidence minus correctness, and the bin of each input.

        Args:
            num_bins: Number of bins of equal width.
        """
        bins = np.clip(np.floor(self.confidence * num_bins), 0, num_bins - 1)
        return np.stack([self.confidence - self.correct, bins], 1)

    def means(self, num_bins: int) -> dict[str, float]:
        """Returns accuracy, nll, brier and ece.

        Args:
            num_bins: Number of bins of the calibration error.
        """
        return {
            "accuracy": float(self.correct.mean()),
            "nll": float(self.nll.mean()),
            "brier": float(self.brier.mean()),
            "ece": expected_calibration_error(
                self.confidence, self.correct, num_bins=num_bins
            ),
        }
