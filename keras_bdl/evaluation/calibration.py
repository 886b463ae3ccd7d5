"""Calibration of the confidence of a classifier."""

from typing import NamedTuple

import numpy as np

from keras_bdl.data.checked_inputs import check_count
from keras_bdl.data.checked_inputs import numbers

BINNINGS = ("width", "mass")


class CalibrationBins(NamedTuple):
    """The bins of the confidence that hold an example, in rising order.

    Attributes:
        count: Number of examples in each bin.
        confidence: Their mean confidence.
        accuracy: The share of them that is right.
    """

    count: np.ndarray
    confidence: np.ndarray
    accuracy: np.ndarray

    @property
    def gap(self):
        """Confidence minus accuracy, positive where over-confident."""
        return self.confidence - self.accuracy


def calibration_bins(
    confidence, correct, num_bins: int = 20, binning: str = "width"
) -> CalibrationBins:
    """Sorts examples into bins by their confidence.

    Args:
        confidence: Highest class probability of each example.
        correct: Whether each example was classified right.
        num_bins: Number of bins. Defaults to `20`.
        binning: `"width"`: bins of equal width on [0, 1], of which the last
            holds 1.0; `"mass"`: bins of equally many examples, where examples
            of equal confidence stay together, in the bin that the middle of
            them falls in. Defaults to `"width"`.

    Returns:
        `CalibrationBins`, without the empty ones.
    """
    confidence = numbers("confidence", confidence).ravel()
    correct = numbers("correct", correct).ravel()
    if confidence.shape != correct.shape:
        raise ValueError(
            "`correct` must hold one value for each confidence. Received: "
            f"{confidence.size} confidences and {correct.size} values"
        )
    check_count("num_bins", num_bins)
    if binning == "width":
        position = confidence
    elif binning == "mass":
        _, place, count = np.unique(
            confidence, return_inverse=True, return_counts=True
        )
        middle = np.cumsum(count) - count / 2
        position = middle[place] / confidence.size
    else:
        raise ValueError(
            f"`binning` must be one of {BINNINGS}. Received: {binning=}"
        )
    bins = np.clip(np.floor(position * num_bins), 0, num_bins - 1).astype(int)
    count = np.bincount(bins)
    held = count > 0
    mean = [
        np.bincount(bins, v)[held] / count[held] for v in (confidence, correct)
    ]
    return CalibrationBins(count[held], *mean)


def expected_calibration_error(
    confidence, correct, num_bins: int = 20, binning: str = "width"
) -> float:
    """Returns the mean over the examples of the gap of their bin.

        ECE = sum_b n_b/n |mean confidence in b - accuracy in b|          (1)

    Arguments as in `calibration_bins`.
    """
    bins = calibration_bins(confidence, correct, num_bins, binning)
    return float(np.average(np.abs(bins.gap), weights=bins.count))  # (1)


def maximum_calibration_error(
    confidence, correct, num_bins: int = 20, binning: str = "width"
) -> float:
    """Returns the largest gap of any bin that holds an example.

    Arguments as in `calibration_bins`.
    """
    bins = calibration_bins(confidence, correct, num_bins, binning)
    return float(np.abs(bins.gap).max())
