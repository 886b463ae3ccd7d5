"""Calibration of class probabilities: bins, errors and the Brier score."""

from typing import Any
from typing import NamedTuple

import numpy as np

from keras_bdl._aliases import ArrayLike
from keras_bdl._arguments import check_choice
from keras_bdl._arguments import check_count
from keras_bdl._data._checked_inputs import numbers

BINNINGS = ("width", "mass")
# Number of points of the smooth error: confidences are rounded to them.
GRID = 2**13
BISECTIONS = 40


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
    check_choice("binning", binning, BINNINGS)
    check_count("num_bins", num_bins)
    confidence, correct = _pairs(confidence, correct)
    if binning == "width":
        position = confidence
    else:
        _, place, count = np.unique(
            confidence, return_inverse=True, return_counts=True
        )
        middle = np.cumsum(count) - count / 2
        position = middle[place] / confidence.size
    bins = _bins(position * num_bins, num_bins)
    count = np.bincount(bins)
    held = count > 0
    mean = [
        np.bincount(bins, v)[held] / count[held] for v in (confidence, correct)
    ]
    return CalibrationBins(count[held], *mean)


def calibration_errors(
    confidence: ArrayLike,
    correct: ArrayLike,
    *,
    num_bins: int = 20,
    binning: str = "width",
) -> tuple[float, float]:
    """Returns the mean (1) and the largest gap (2) over the bins b.

    ECE = sum_b n_b/n |mean confidence in b - accuracy in b|              (1)
    MCE = max_b |mean confidence in b - accuracy in b|                    (2)
    """
    bins = calibration_bins(
        confidence, correct, num_bins=num_bins, binning=binning
    )
    gaps = np.abs(bins.gap)
    return float(np.average(gaps, weights=bins.count)), float(gaps.max())


class ClassBins:
    """Sums over bins of equal width, one row of bins for each class.

    The sums are enough for the parts of the Brier score and for the classwise
    calibration error. Memory does not grow with the number of inputs.

    Attributes:
        probability: Sum of the probabilities of the class in each bin.
        hits: Number of inputs in each bin whose label is the class.
    """

    def __init__(self, num_classes: int, num_bins: int):
        self.num_inputs = 0
        self._above = np.zeros((num_classes, num_bins), "int64")
        self.probability = np.zeros((num_classes, num_bins))
        self.hits = np.zeros((num_classes, num_bins))
        self._squares = np.zeros(num_classes)
        self._hit_probability = np.zeros((num_classes, num_bins))

    @property
    def count(self) -> np.ndarray:
        """Number of inputs in each bin of each class."""
        count = self._above.copy()
        count[:, 0] += self.num_inputs - count.sum(1)
        return count

    def add(self, probabilities: np.ndarray, y: np.ndarray) -> None:
        """Adds a block of inputs: float64 rows and integer labels."""
        num_bins = self.probability.shape[1]
        position = probabilities * num_bins
        # A row has at most `num_bins` probabilities outside the first bin.
        above = position >= 1
        classes = np.nonzero(above)[1]
        cells = classes * num_bins + _bins(position[above], num_bins)
        chosen = np.take_along_axis(probabilities, y[:, None], axis=-1)[:, 0]
        hits = y * num_bins + _bins(chosen * num_bins, num_bins)
        self.num_inputs += len(y)
        self._above += self._sums(cells)
        self.probability += self._sums(cells, probabilities[above])
        self.probability[:, 0] += np.where(above, 0.0, probabilities).sum(0)
        self._squares += np.einsum("ij,ij->j", probabilities, probabilities)
        self.hits += self._sums(hits)
        self._hit_probability += self._sums(hits, chosen)

    def brier_parts(self) -> dict[str, float]:
        """Returns (1) to (4), summed over the classes.

        For each class, p_i is the probability of the class and o_i is 1 if it
        is the label, otherwise 0. With n_k inputs in bin k, p_k and o_k the
        means over the bin, and o the frequency of the class,

            reliability = sum_k n_k/n (p_k - o_k)^2                       (1)
            resolution = sum_k n_k/n (o_k - o)^2                          (2)
            uncertainty = o (1 - o)                                       (3)
            residual = 1/n sum_i (p_i - p_k)^2 - 2 (p_i - p_k)(o_i - o_k) (4)

        Brier score = (1) - (2) + (3) + (4) holds exactly. The residual is zero
        if all probabilities in a bin are equal.

        Reference:
            - Murphy, 1973, A new vector partition of the probability score;
              Stephenson et al., 2008, for (4)
        """
        count, n = self.count, self.num_inputs
        some = np.maximum(count, 1)
        p, o = self.probability / some, self.hits / some
        frequency = self.hits.sum(1, keepdims=True) / n
        # sum (p_i - p_k)^2 and sum (p_i - p_k)(o_i - o_k) over a class.
        variance = self._squares - np.sum(count * p**2, 1)
        covariance = np.sum(self._hit_probability - count * p * o, 1)
        return {
            "reliability": float(np.sum(count / n * (p - o) ** 2)),  # (1)
            "resolution": float(np.sum(count / n * (o - frequency) ** 2)),
            "uncertainty": float(np.sum(frequency * (1 - frequency))),  # (3)
            "residual": float(np.sum(variance - 2 * covariance) / n),  # (4)
        }

    def calibration_errors(self) -> np.ndarray:
        """Returns the calibration error of the probability of each class k.

        error_k = sum_b n_kb/n |mean probability of k in b - frequency of k|

        Reference:
            - [Kull et al., 2019](https://arxiv.org/abs/1910.12656), eq. 3,
              which is the mean over the classes
        """
        gaps = np.abs(self.probability - self.hits)
        return gaps.sum(1) / self.num_inputs

    def _sums(self, cells: np.ndarray, weights: Any = None) -> np.ndarray:
        shape = self.probability.shape
        size = shape[0] * shape[1]
        return np.bincount(cells, weights, size).reshape(shape)


def smooth_calibration_error(
    confidence: ArrayLike, correct: ArrayLike
) -> float:
    """Returns the smooth calibration error, which has no bins to choose.

    With the confidences `f_i`, 1 for correct and 0 for wrong inputs as `o_i`,
    and the Gaussian kernel K of standard deviation s, reflected at 0 and 1,

        r_s(t) = 1/n sum_i K_s(t, f_i) (o_i - f_i)                        (1)
        error_s = integral of |r_s(t)| over t from 0 to 1                 (2)

    `error_s` falls as s grows. The result is the error at the one s with

        error_s = s                                                       (3)

    The confidences are rounded to 8192 points, linearly between two
    neighbours. Time and memory are linear in the number of inputs.

    Reference:
        - [Blasiok and Nakkiran, 2023](https://arxiv.org/abs/2309.12236),
          definition 1.2 and section 3
    """
    confidence, correct = _pairs(confidence, correct)
    # Rounding may lift a probability above 1 by the precision of float16.
    if confidence.min() < 0 or confidence.max() > 1 + 1e-3:
        raise ValueError(
            "`confidence` must be from 0 to 1. Received: confidence from "
            f"{confidence.min():.4g} to {confidence.max():.4g}"
        )
    confidence = np.minimum(confidence, 1.0)
    return _fixed_point(_coefficients(confidence, correct - confidence))


def _coefficients(position: np.ndarray, residual: np.ndarray) -> np.ndarray:
    """Returns the cosine coefficients of the residuals on the grid."""
    from scipy.fft import dct

    # Point k is at (k + 1/2) / GRID, and each end belongs to its first point.
    place = np.clip(position * GRID - 0.5, 0, GRID - 1)
    low = np.minimum(place.astype(int), GRID - 2)
    share = place - low
    mass = np.bincount(low, residual * (1 - share), GRID)
    mass += np.bincount(low + 1, residual * share, GRID)
    return dct(mass / position.size, type=2)


def _fixed_point(coefficients: np.ndarray) -> float:
    """Returns the solution of (3)."""
    low, high = 0.0, 1.0
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        if _smoothed(coefficients, middle) > middle:
            low = middle
        else:
            high = middle
    return float(high)


def _smoothed(coefficients: np.ndarray, stddev: float) -> float:
    """Returns (2)."""
    from scipy.fft import idct

    # The reflected Gaussian is the heat kernel of [0, 1] with closed ends: it
    # multiplies the cosine of frequency k by exp(-(pi k s)^2 / 2).
    decay = np.exp(-((np.pi * np.arange(GRID) * stddev) ** 2) / 2)
    return np.abs(idct(coefficients * decay, type=2)).sum()  # (1), (2)


def _bins(position: np.ndarray, num_bins: int) -> np.ndarray:
    """Returns the bin of a number from 0 to `num_bins`."""
    return np.clip(np.floor(position), 0, num_bins - 1).astype("int64")


def _pairs(confidence: ArrayLike, correct: ArrayLike) -> tuple:
    """Returns both as checked arrays of one length."""
    confidence = numbers("confidence", confidence).ravel()
    correct = numbers("correct", correct).ravel()
    if confidence.shape != correct.shape:
        raise ValueError(
            "`correct` must hold one value for each confidence. Received: "
            f"{confidence.size} confidences and {correct.size} values"
        )
    return confidence, correct
