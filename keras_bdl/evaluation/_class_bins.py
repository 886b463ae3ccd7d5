"""Scores of every class, from sums over bins of its probability."""

import numpy as np

# A longer report shows only the classes with the lowest F1.
MOST_ROWS = 10
_NAMES = {"ece": "ECE", "f1": "F1", "iou": "IoU"}


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


def per_class_scores(
    y: np.ndarray, predicted: np.ndarray, bins: ClassBins
) -> dict[str, list]:
    """Returns a list with one number for each class, by name.

    For class k, with `tp` the number of inputs of the class that were
    classified as k,

        precision = tp / number of inputs classified as k                 (1)
        recall = tp / number of inputs of class k                         (2)
        f1 = 2 tp / (denominator of (1) + denominator of (2))             (3)

    A ratio of zeros is NaN. `ece` is the calibration error of the probability
    of class k, with k against all other classes.

    Args:
        y: Integer labels.
        predicted: Most probable class of each input.
        bins: The bins of the same inputs.
    """
    num_classes = len(bins.hits)
    count = np.bincount(y, minlength=num_classes)
    claimed = np.bincount(predicted, minlength=num_classes)
    hits = np.bincount(y[y == predicted], minlength=num_classes)
    return {
        "precision": ratio_of_counts(hits, claimed),  # (1)
        "recall": ratio_of_counts(hits, count),  # (2)
        "f1": ratio_of_counts(2 * hits, claimed + count),  # (3)
        "ece": bins.calibration_errors().tolist(),
        "count": count.tolist(),
    }


def per_class_section(
    scores: dict[str, list], lowest: str = "f1"
) -> tuple[str, list]:
    """Returns the title and the rows of a table with a row for each class.

    Args:
        scores: Lists with a number for each class, such as the result of
            `per_class_scores`. The last one is `count`.
        lowest: The score that selects the classes of a long table. Defaults to
            `"f1"`.
    """
    num_classes = len(scores["count"])
    title, shown = "Classes", list(range(num_classes))
    if num_classes > MOST_ROWS:
        name = _NAMES[lowest]
        title = f"{MOST_ROWS} of {num_classes} classes, those of lowest {name}"
        # NaN, of classes that do not occur, comes last.
        shown = np.argsort(scores[lowest], kind="stable")[:MOST_ROWS].tolist()
    rows = [["class", *(_NAMES.get(name, name) for name in scores)]]
    for k in shown:
        numbers = [scores[name][k] for name in scores if name != "count"]
        rows.append([str(k), *numbers, str(scores["count"][k])])
    return title, rows


def ratio_of_counts(part: np.ndarray, whole: np.ndarray) -> list[float]:
    """Returns a ratio for each class, NaN for a ratio of zeros.

    Args:
        part: Numerators.
        whole: Denominators.
    """
    ratio = np.full(len(whole), np.nan)
    np.divide(part, whole, out=ratio, where=whole > 0)
    return ratio.tolist()


def _bins(position, num_bins):
    """Returns the bin of a probability times `num_bins`."""
    return np.clip(np.floor(position), 0, num_bins - 1).astype("int64")
