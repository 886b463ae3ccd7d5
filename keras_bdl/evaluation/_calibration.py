"""Calibration errors of a classifier, in bins."""

from typing import NamedTuple

import numpy as np

from keras_bdl._aliases import ArrayLike
from keras_bdl._arguments import check_choice
from keras_bdl._arguments import check_count
from keras_bdl._data._checked_inputs import as_array
from keras_bdl._data._checked_inputs import class_labels
from keras_bdl._data._checked_inputs import number_blocks
from keras_bdl._data._checked_inputs import numbers
from keras_bdl.evaluation._class_bins import ClassBins

BINNINGS = ("width", "mass")


class CalibrationBins(NamedTuple):
    """Bins of the confidence in rising order, without empty bins.

    `calibration_bins` returns this object.

    Attributes:
        count: Number of examples in each bin.
        confidence: Mean confidence of the examples in each bin.
        accuracy: Fraction of correct examples in each bin.
    """

    count: np.ndarray  # type: ignore[assignment]  # hides `tuple.count`
    confidence: np.ndarray
    accuracy: np.ndarray

    @property
    def gap(self) -> np.ndarray:
        """Confidence minus accuracy, positive for over-confidence."""
        return self.confidence - self.accuracy


def calibration_bins(
    confidence: ArrayLike,
    correct: ArrayLike,
    *,
    num_bins: int = 20,
    binning: str = "width",
) -> CalibrationBins:
    """Sorts examples into bins by their confidence.

    Use the bins for a reliability diagram.

    Args:
        confidence: Highest class probability of each example.
        correct: Whether each example was classified correctly.
        num_bins: Number of bins. Defaults to `20`.
        binning: `"width"` for bins of equal width on [0, 1]; the last bin
            includes 1.0. `"mass"` for bins with equally many examples;
            examples of equal confidence stay in one bin. Defaults to
            `"width"`.

    Returns:
        `CalibrationBins` without empty bins.

    Example:

    ```python
    bins = keras_bdl.evaluation.calibration_bins(
        prediction.confidence, prediction.predicted_classes == y_test
    )
    bins.accuracy, bins.gap
    ```
    """
    confidence = numbers("confidence", confidence).ravel()
    correct = numbers("correct", correct).ravel()
    check_choice("binning", binning, BINNINGS)
    if confidence.shape != correct.shape:
        raise ValueError(
            "`correct` must hold one value for each confidence. Received: "
            f"{confidence.size} confidences and {correct.size} values"
        )
    check_count("num_bins", num_bins)
    if binning == "width":
        position = confidence
    else:
        _, place, count = np.unique(
            confidence, return_inverse=True, return_counts=True
        )
        middle = np.cumsum(count) - count / 2
        position = middle[place] / confidence.size
    bins = np.clip(np.floor(position * num_bins), 0, num_bins - 1).astype(int)
    count = np.bincount(bins)
    held = count > 0
    mean = [
        np.bincount(bins, v)[held] / count[held] for v in (confidence, correct)
    ]
    return CalibrationBins(count[held], *mean)


def expected_calibration_error(
    confidence: ArrayLike,
    correct: ArrayLike,
    *,
    num_bins: int = 20,
    binning: str = "width",
) -> float:
    """Returns the mean distance between confidence and accuracy, over bins.

    With `n_b` examples in bin b,

        ECE = sum_b n_b/n |mean confidence in b - accuracy in b|          (1)

    Args:
        confidence: Highest class probability of each example.
        correct: Whether each example was classified correctly.
        num_bins: Number of bins. Defaults to `20`.
        binning: `"width"` for bins of equal width on [0, 1], or `"mass"` for
            bins with equally many examples. Defaults to `"width"`.

    Example:

    ```python
    keras_bdl.evaluation.expected_calibration_error(
        prediction.confidence, prediction.predicted_classes == y_test
    )
    ```
    """
    bins = calibration_bins(
        confidence, correct, num_bins=num_bins, binning=binning
    )
    return float(np.average(np.abs(bins.gap), weights=bins.count))  # (1)


def maximum_calibration_error(
    confidence: ArrayLike,
    correct: ArrayLike,
    *,
    num_bins: int = 20,
    binning: str = "width",
) -> float:
    """Returns the largest distance between confidence and accuracy, over bins.

    Empty bins do not count. A bin with a single example counts as much as any
    other bin, so the result is noisy on small data.

    Args:
        confidence: Highest class probability of each example.
        correct: Whether each example was classified correctly.
        num_bins: Number of bins. Defaults to `20`.
        binning: `"width"` for bins of equal width on [0, 1], or `"mass"` for
            bins with equally many examples. Defaults to `"width"`.

    Example:

    ```python
    correct = prediction.predicted_classes == y_test
    keras_bdl.evaluation.maximum_calibration_error(
        prediction.confidence, correct
    )
    ```
    """
    bins = calibration_bins(
        confidence, correct, num_bins=num_bins, binning=binning
    )
    return float(np.abs(bins.gap).max())


def classwise_calibration_error(
    probabilities: ArrayLike, y: ArrayLike, *, num_bins: int = 20
) -> float:
    """Returns the calibration error of each class, averaged over the classes.

    `expected_calibration_error` tests the highest probability alone. Use this
    function if all probabilities of an input matter. For each class, the
    inputs are in bins of equal width by the probability of the class. With
    `n_kb` inputs in bin b of class k, and K classes,

        error = 1/K sum_k sum_b n_kb/n
            |mean probability of k in b - frequency of k in b|           (1)

    Most probabilities of many classes are close to 0, so the error shrinks
    with the number of classes. Compare models on the same classes.

    Args:
        probabilities: One row per input.
        y: Integer labels or one-hot rows.
        num_bins: Number of bins for each class. Defaults to `20`.

    Example:

    ```python
    keras_bdl.evaluation.classwise_calibration_error(prediction.mean, y_test)
    ```

    Reference:
        - [Kull et al., 2019](https://arxiv.org/abs/1910.12656), eq. 3
    """
    check_count("num_bins", num_bins)
    probs = as_array("probabilities", probabilities)
    y = class_labels(y, probs.shape)
    bins = ClassBins(probs.shape[-1], num_bins)
    for rows, p in number_blocks("probabilities", probs):
        bins.add(p, y[rows])
    return float(bins.calibration_errors().mean())  # (1)
