"""Losses of sets of labels, as a function of the threshold of a set."""

import math
from collections.abc import Callable
from collections.abc import Iterator
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

    Args:
        method: A `RiskControl`.
        prediction: The prediction.
        y: Labels, integers or one-hot, or `None` for those in the prediction.

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
        """Returns the loss of each example.

        Args:
            threshold: Smallest probability in a set.
        """
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

        Args:
            threshold: Smallest probability in a set.
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

    def of_missed(self, missed: np.ndarray, true: int) -> np.ndarray:
        """Returns the losses of sets that miss some of the true labels.

        Args:
            missed: Number of missed labels in each set.
            true: Number of true labels.
        """
        return _LOSSES[self._method.loss](missed, true)

    def _losses(self, rows, inside):
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

    def _truth(self, rows, count):
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
    """Returns a loss function.

    Args:
        loss: Its name, or the function.
    """
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

    def of_sets(inside, y):
        missed = (y & ~inside).reshape(len(y), -1).sum(1)
        return of_counts(missed, y.reshape(len(y), -1).sum(1))

    return of_sets


def name_of(loss: str | Callable) -> str:
    """Returns the name of a loss in reports and files.

    Args:
        loss: Its name, or the function.
    """
    if isinstance(loss, str):
        return loss
    return getattr(loss, "__name__", type(loss).__name__)


def label_blocks(
    prediction: ClassificationPrediction, presence: bool
) -> Iterator[tuple[slice, np.ndarray]]:
    """Yields slices of examples, and the probabilities of their labels.

    Memory does not grow with the number of examples.

    Args:
        prediction: The prediction.
        presence: Whether two classes mean absent and present.
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
    """Returns sets without the labels that the mask leaves out.

    Args:
        inside: Whether each label is in the set, for some examples.
        rows: The slice of these examples.
        prediction: The prediction.
        presence: Whether two classes mean absent and present.
    """
    if prediction.mask is None:
        return inside
    kept = prediction.mask[rows]
    if not present_only(prediction.log_mean.shape, presence):
        kept = kept[..., None]
    return inside & kept


def present_only(shape: tuple, presence: bool) -> bool:
    """Returns whether sets hold present labels, without an axis of classes.

    Args:
        shape: Shape of the prediction.
        presence: Whether two classes mean absent and present.
    """
    return presence and shape[-1] == 2


def _false_negative_rate(missed, true):
    return missed / np.maximum(true, 1)


def _miscoverage(missed, true):
    del true
    return (missed > 0).astype("float64")


# Functions of the numbers of missed and of true labels.
_LOSSES = {
    "false_negative_rate": _false_negative_rate,
    "miscoverage": _miscoverage,
}
