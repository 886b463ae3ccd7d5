"""Sums over the inputs in each bin of the probability of each class."""

import numpy as np


class ClassBins:
    """Sums over bins of equal width, one row of bins for each class.

    The sums are enough for the parts of the Brier score and for classwise
    calibration errors. Memory does not grow with the number of inputs.

    Args:
        num_classes: Number of classes.
        num_bins: Number of bins; the last bin includes 1.0.

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
        """Adds a block of inputs.

        Args:
            probabilities: One float64 row per input.
            y: Integer labels.
        """
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

    def brier_parts(self) -> list[float]:
        """Returns reliability, resolution, uncertainty and residual.

        `keras_bdl.evaluation.brier_decomposition` has the equations.
        """
        count, n = self.count, self.num_inputs
        some = np.maximum(count, 1)
        p, o = self.probability / some, self.hits / some
        frequency = self.hits.sum(1, keepdims=True) / n
        # sum (p_i - p_k)^2 and sum (p_i - p_k)(o_i - o_k) over a class.
        variance = self._squares - np.sum(count * p**2, 1)
        covariance = np.sum(self._hit_probability - count * p * o, 1)
        return [
            float(np.sum(count / n * (p - o) ** 2)),
            float(np.sum(count / n * (o - frequency) ** 2)),
            float(np.sum(frequency * (1 - frequency))),
            float(np.sum(variance - 2 * covariance) / n),
        ]

    def calibration_errors(self) -> np.ndarray:
        """Returns the calibration error of the probability of each class."""
        gaps = np.abs(self.probability - self.hits)
        return gaps.sum(1) / self.num_inputs

    def _sums(self, cells, weights=None):
        shape = self.probability.shape
        size = shape[0] * shape[1]
        return np.bincount(cells, weights, size).reshape(shape)


def _bins(position, num_bins):
    """Returns the bin of a probability times `num_bins`."""
    return np.clip(np.floor(position), 0, num_bins - 1).astype("int64")
