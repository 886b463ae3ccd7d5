"""Losses of sets of labels, as a function of the threshold of a set."""

import bisect
import math
from collections.abc import Callable
from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import numpy as np

from keras_bdl._aliases import ArrayLike
from keras_bdl._arguments import did_you_mean
from keras_bdl._data._checked_inputs import as_array
from keras_bdl._data._checked_inputs import class_labels
from keras_bdl._data._checked_inputs import kept_labels
from keras_bdl._data._checked_inputs import labels_of
from keras_bdl._data._checked_inputs import row_blocks
from keras_bdl.prediction import ClassificationPrediction


class LabelLosses:
    """The losses of examples as a function of the threshold of a set.

    Memory beside the result does not grow with the number of examples.

    Attributes:
        num_true: Number of true labels of all examples.
        below: Largest probability below the last threshold, or 0.
        above: Smallest probability from the last threshold on, or 2.
    """

    def __init__(
        self,
        method: Any,
        prediction: ClassificationPrediction,
        y: ArrayLike | None,
    ):
        self._method = method
        self._prediction = prediction
        self._shape = shape = prediction.log_mean.shape
        self._y = as_array("y", labels_of(prediction, y))
        if self._y.shape[:1] != shape[:1]:
            class_labels(self._y, shape)  # raises the error
        self._present_only = present_only(shape, method.presence)
        self.num_true = 0
        self.below = self.above = 0.0

    def at(self, threshold: float) -> np.ndarray:
        """Returns the loss of each example."""
        found, below, above, self.num_true = [], 0.0, 2.0, 0
        # A Python float would be rounded to the precision of float32.
        threshold = np.float64(threshold)
        for rows, probs in label_blocks(
            self._prediction, self._method.presence
        ):
            inside = probs >= threshold
            below = max(below, np.where(inside, 0, probs).max())
            above = min(above, np.where(inside, probs, 2).min())
            found.append(self._losses(rows, inside))
        self.below, self.above = float(below), float(above)
        return np.concatenate(found)

    def sizes(self, threshold: float) -> tuple[np.ndarray, int]:
        """Returns the number of labels that count in the set of each example.

        The second number is that of all such labels, in a set or not.
        """
        found, total = [], 0
        threshold = np.float64(threshold)
        for rows, probs in label_blocks(
            self._prediction, self._method.presence
        ):
            _, kept = self._truth(rows, len(probs))
            inside = (probs >= threshold) & kept
            found.append(inside.reshape(len(inside), -1).sum(1))
            total += int(np.broadcast_to(kept, probs.shape).sum())
        return np.concatenate(found), total

    def of_true_labels(self) -> Iterator[np.ndarray]:
        """Yields the probabilities of the true labels of each example."""
        for rows, probs in label_blocks(
            self._prediction, self._method.presence
        ):
            truth, _ = self._truth(rows, len(probs))
            counts = truth.reshape(len(truth), -1).sum(1)
            yield from np.split(probs[truth], counts.cumsum()[:-1])

    def of_missed(self, missed: np.ndarray, true: Any) -> np.ndarray:
        """Returns the losses of sets that miss some of the true labels."""
        return _LOSSES[self._method.loss](missed, true)

    def _losses(self, rows: slice, inside: np.ndarray) -> np.ndarray:
        truth, kept = self._truth(rows, len(inside))
        self.num_true += int(truth.sum())
        losses = losses_of(self._method.loss)(inside & kept, truth)
        losses = np.asarray(losses, "float64")
        bound = self._method.loss_bound
        if losses.shape != (len(inside),) or not np.all(losses <= bound):
            raise ValueError(
                "`loss` must return one number of at most `loss_bound` for "
                f"each example, {len(inside)} here. Received: losses of shape "
                f"{losses.shape}, the largest {losses.max():.4g}"
            )
        return losses

    def _truth(self, rows: slice, count: int) -> tuple[np.ndarray, np.ndarray]:
        """Returns whether each label is true, and whether it counts."""
        shape = (count, *self._shape[1:])
        mask = self._prediction.mask
        y, kept = kept_labels(
            self._y[rows],
            shape,
            (self._method.ignore_class, self._prediction.ignore_class),
            None if mask is None else mask[rows],
        )
        y, kept = y.reshape(shape[:-1]), kept.reshape(shape[:-1])
        if self._present_only:
            return (y == 1) & kept, kept
        y, kept = y[..., None], kept[..., None]
        return (y == np.arange(shape[-1])) & kept, kept


def losses_of(loss: str | Callable) -> Callable:
    """Returns a loss function."""
    if callable(loss):
        return loss
    if loss not in _LOSSES:
        raise ValueError(
            f"`loss` must be one of {tuple(_LOSSES)} or a function of "
            "`(inside, y)`. For a saved function of your own, pass "
            "`custom_objects` to `keras_bdl.conformal.load`. "
            f"{did_you_mean(loss, _LOSSES)}Received: loss={loss!r}"
        )
    of_counts = _LOSSES[loss]

    def of_sets(inside: np.ndarray, y: np.ndarray) -> np.ndarray:
        missed = (y & ~inside).reshape(len(y), -1).sum(1)
        return of_counts(missed, y.reshape(len(y), -1).sum(1))

    return of_sets


def name_of(loss: str | Callable) -> str:
    """Returns the name of a loss in reports and files."""
    if isinstance(loss, str):
        return loss
    return getattr(loss, "__name__", type(loss).__name__)


def label_blocks(
    prediction: ClassificationPrediction, presence: bool
) -> Iterator[tuple[slice, np.ndarray]]:
    """Yields slices of examples, and the probabilities of their labels.

    Memory does not grow with the number of examples.
    """
    log_mean = prediction.log_mean
    shape = log_mean.shape
    for rows in row_blocks(shape[0], math.prod(shape[1:])):
        block = log_mean[rows]
        if present_only(shape, presence):
            block = block[..., 1]
        dtype = "float32" if block.dtype.itemsize < 4 else block.dtype
        # A contiguous copy: `exp` of a view may round in another way.
        yield rows, np.exp(np.ascontiguousarray(block, dtype))


def counted_labels(
    inside: np.ndarray,
    rows: slice,
    prediction: ClassificationPrediction,
    presence: bool,
) -> np.ndarray:
    """Returns sets without the labels that the mask leaves out."""
    if prediction.mask is None:
        return inside
    kept = prediction.mask[rows]
    if not present_only(prediction.log_mean.shape, presence):
        kept = kept[..., None]
    return inside & kept


def present_only(shape: tuple, presence: bool) -> bool:
    """Returns whether sets hold present labels, without an axis of classes."""
    return presence and shape[-1] == 2


def _false_negative_rate(missed: np.ndarray, true: np.ndarray) -> np.ndarray:
    return missed / np.maximum(true, 1)


def _miscoverage(missed: np.ndarray, true: np.ndarray) -> np.ndarray:
    del true
    return (missed > 0).astype("float64")


# Functions of the numbers of missed and of true labels.
_LOSSES = {
    "false_negative_rate": _false_negative_rate,
    "miscoverage": _miscoverage,
}


# Odds that grow by 0.5 %, between the whole set and the empty one.
THRESHOLDS = np.concatenate(
    [[0.0], 1 / (1 + np.exp(-np.arange(-40, 17, 0.005))), [2.0]]
)


class LossSums:
    """Sums of the losses of examples at the thresholds of a grid.

    Memory does not grow with the number of examples.

    Attributes:
        count: Number of examples.
    """

    def __init__(self) -> None:
        self.count = 0
        self._sums = np.zeros(len(THRESHOLDS))
        # Whether no loss was rounded, nor their sum.
        self._exact = np.ones(len(THRESHOLDS), bool)

    def add(self, losses: LabelLosses) -> None:
        """Adds examples."""
        for probs in losses.of_true_labels():
            # A label is missed from the first threshold above it.
            places = np.searchsorted(THRESHOLDS, probs, side="right")
            missed = np.bincount(places, minlength=len(THRESHOLDS)).cumsum()
            of_example = losses.of_missed(missed, len(probs))
            self._sums += of_example
            self._exact &= _is_exact(of_example)
            self.count += 1

    def largest_threshold(self, allowed: Fraction) -> float:
        """Returns the largest threshold of the grid with a low sum, or 0."""
        places = range(len(THRESHOLDS))
        first = bisect.bisect_right(places, allowed, key=self._total)
        return float(THRESHOLDS[max(first - 1, 0)])

    def _total(self, place: int) -> Fraction:
        """Returns a sum, never below the exact one."""
        total = Fraction(float(self._sums[place]))
        if self._exact[place] and total < 2**32:
            return total
        # Each loss is rounded, and each addition.
        return total * (1 + (self.count + 1) * Fraction(2.0**-52))


def search_threshold(
    calibration: LabelLosses, whole: np.ndarray, allowed: Fraction
) -> float:
    """Returns the largest threshold with a low sum of losses, 0 if none has."""
    losses_low, losses_high = whole, calibration.at(2.0)
    _check_monotone(losses_low, losses_high)
    if _total(whole) > allowed:
        return 0.0
    if _total(losses_high) <= allowed:
        return 2.0  # even empty sets have a low loss
    # The sum of `low` is allowed, and that of no threshold above `high` is.
    low, high = 0.0, calibration.below
    while low < high:
        middle = _between(low, high)
        losses = calibration.at(middle)
        _check_monotone(losses_low, losses)
        _check_monotone(losses, losses_high)
        if _total(losses) <= allowed:
            low, losses_low = calibration.above, losses
        else:
            high, losses_high = calibration.below, losses
    return low


def _between(low: float, high: float) -> float:
    """Returns the float half-way between two, by count, above the lower."""
    # The bits of floats above zero are integers in the same order.
    first, last = np.array([low, high]).view("int64").tolist()
    return float(np.array(last - (last - first) // 2).view("float64"))


def _total(losses: np.ndarray) -> Fraction:
    """Returns the sum of losses, never below the exact one."""
    total = Fraction(math.fsum(losses))
    if np.all(_is_exact(losses)) and abs(total) < 2**32:
        return total  # exact: no loss was rounded, nor was the sum
    # A loss such as 1/3 is rounded, perhaps down.
    return total + Fraction(1e-12) * Fraction(math.fsum(np.abs(losses)))


def _is_exact(losses: np.ndarray) -> np.ndarray:
    """Returns whether each loss is a multiple of 2^-20."""
    steps = losses * 2.0**20
    return steps == np.rint(steps)


def _check_monotone(
    of_larger_set: np.ndarray, of_smaller_set: np.ndarray
) -> None:
    # Rounding may change the order of sums.
    if np.any(of_larger_set > of_smaller_set + 1e-9):
        raise ValueError(
            "`loss` must not be larger for a larger set. Conformal risk "
            "control holds for such losses only. Received: a loss that grew "
            f"by {np.max(of_larger_set - of_smaller_set):.4g}"
        )
