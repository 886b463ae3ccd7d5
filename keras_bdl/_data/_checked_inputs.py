"""Checks of labels, probabilities and predictions."""

from collections.abc import Iterable
from collections.abc import Iterator
from typing import Any

import keras
import numpy as np

from keras_bdl._aliases import ArrayLike

# Larger than the rounding error of float16 for a sum over a thousand classes.
SUM_TOLERANCE = 2e-2


def as_array(name: str, values: ArrayLike, dtype: Any = None) -> np.ndarray:
    """Returns values as an array, without a copy if they are one."""
    try:
        return np.asarray(values, dtype=dtype)
    except (TypeError, ValueError):
        raise ValueError(
            f"`{name}` must hold numbers, all rows of one length. "
            f"Received: {name} of type {type(values).__name__}"
        ) from None


def numbers(name: str, values: ArrayLike) -> np.ndarray:
    """Returns values as a float64 array that is not empty and has no NaN."""
    array = as_array(name, values, dtype="float64")
    if not array.size:
        raise ValueError(
            f"`{name}` must hold at least one value. "
            f"Received: {name} of shape {array.shape}"
        )
    if np.isnan(array).any():
        raise ValueError(
            f"`{name}` must not hold NaN. Remove these examples, or find the "
            "cause. "
            f"Received: {name} with {np.isnan(array).sum()} NaN among "
            f"{array.size} values"
        )
    return array


def probabilities(name: str, values: ArrayLike) -> np.ndarray:
    """Returns values as an array, after a check that they are probabilities.

    The probabilities must sum to 1 over the last axis.
    """
    array = as_array(name, values)
    if not array.ndim:
        raise ValueError(
            f"`{name}` must have the classes on the last axis. "
            f"Received: {name}={values}"
        )
    for _, block in number_blocks(name, array):
        if block.min() < 0:
            raise ValueError(
                f"`{name}` must not be negative. Apply a softmax to logits "
                f"first. Received: {name} with an entry {block.min():.4g}"
            )
        _check_sums(name, block)
    return array


def number_blocks(
    name: str, array: np.ndarray
) -> Iterator[tuple[slice, np.ndarray]]:
    """Yields float64 blocks of rows, checked as in `numbers`.

    Memory does not grow with the number of rows.
    """
    if not array.size:
        numbers(name, array)  # raises the error
    rows = array.reshape(-1, array.shape[-1])
    for block in row_blocks(*rows.shape):
        yield block, numbers(name, rows[block])


def log_probabilities(name: str, prediction: Any) -> np.ndarray:
    """Returns the log probabilities of a prediction, one row per input."""
    blocks = [log_p for _, log_p, _ in probability_blocks(name, prediction)]
    return np.concatenate(blocks)


def probability_blocks(
    name: str, prediction: Any
) -> Iterator[tuple[slice, np.ndarray, np.ndarray]]:
    """Yields float64 blocks of the probabilities, one row per input.

    Memory does not grow with the number of inputs.
    """
    check_classification(name, prediction)
    for rows, log_p in number_blocks(f"{name}.log_mean", prediction.log_mean):
        p = np.exp(log_p)
        _check_sums(name, p)
        yield rows, log_p, p


def check_classification(name: str, prediction: Any) -> None:
    """Raises an error unless a value is a `ClassificationPrediction`."""
    if getattr(prediction, "task", None) != "classification":
        raise ValueError(
            f"`{name}` must be a `ClassificationPrediction` for one model "
            "output, from `keras_bdl.predict` or "
            "`ClassificationPrediction.from_probabilities`. "
            f"{how_to_predict(prediction)}"
            f"Received: {type(prediction).__name__}"
        )


def how_to_predict(received: Any) -> str:
    """Returns advice for an object that stands in place of a prediction."""
    if isinstance(received, keras.Model):
        return "Write `keras_bdl.predict(model, x)` in place of the model. "
    if isinstance(received, (dict, list, tuple)):
        return "Pass several outputs one by one. "
    return ""


def _check_sums(name: Any, probs: Any) -> None:
    total = probs.sum(-1).ravel()
    worst = total[np.abs(total - 1.0).argmax()]
    if not abs(worst - 1.0) < SUM_TOLERANCE:
        raise ValueError(
            f"`{name}` must hold probabilities that sum to 1 over the "
            "classes. Apply a softmax to logits first. "
            f"Received: {name} with a sum of {worst:.4g}"
        )


def class_labels(y: ArrayLike, shape: tuple) -> np.ndarray:
    """Returns one integer label per input."""
    inputs, classes = shape[:-1], shape[-1]
    y = as_array("y", y)
    if classes is None and y.shape[:-1] == inputs and y.shape[-1] > 1:
        classes = y.shape[-1]
    if y.shape == (*inputs, classes):
        return _classes_of_one_hot(y)
    y = numbers("y", y)
    if y.shape not in (inputs, (*inputs, 1)):
        raise ValueError(
            "`y` must hold one integer or one one-hot row for each input, in "
            f"shape {inputs} or {shape}. Received: y of shape {y.shape}"
        )
    wrong = (y != np.floor(y)) | (y < 0)
    allowed = "of at least 0"
    if classes is not None:
        wrong |= y >= classes
        allowed = f"from 0 to {classes - 1}, the classes of the prediction"
    if wrong.any():
        raise ValueError(
            f"`y` must hold integers {allowed}. "
            f"Received: y with a label {y[wrong][0]:g}"
        )
    return y.reshape(-1).astype("int64")


def kept_labels(
    y: ArrayLike,
    shape: tuple,
    ignored: Iterable[int | None] = (),
    mask: np.ndarray | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """Returns one integer label per input, and whether each counts.

    The label of an input that a mask leaves out may be anything, and becomes 0.
    """
    y, inputs = as_array("y", y), shape[:-1]
    kept = np.ones(inputs, bool) if mask is None else np.array(mask, bool)
    if y.shape == shape:
        if mask is not None:
            y = np.where(kept[..., None], y, np.arange(shape[-1]) == 0)
        labels = class_labels(y, shape)
    else:
        if y.shape == (*inputs, 1):
            y = y.reshape(inputs)
        if y.shape != inputs:
            class_labels(y, shape)  # raises the error
        kept &= ~np.isin(y, _numbers(ignored))
        counted = y if kept.all() else np.where(kept, y, 0)
        labels = class_labels(counted, shape)
    kept = kept.ravel() & ~np.isin(labels, _numbers(ignored))
    return labels, kept


def _numbers(ignored: Any) -> Any:
    return [label for label in ignored if label is not None]


def _classes_of_one_hot(y: Any) -> Any:
    """Returns the integers of one-hot rows, which are checked."""
    found = np.empty(y.size // y.shape[-1], "int64")
    for rows, block in number_blocks("y", y):
        binary = ((block == 0) | (block == 1)).all()
        if not (binary and (block.sum(-1) == 1).all()):
            raise ValueError(
                "`y` must be one-hot if it has the shape of the prediction. "
                "For soft labels, pass the integers `y.argmax(-1)`. "
                f"Received: y with rows such as {block[0]}"
            )
        found[rows] = block.argmax(-1)
    return found


def targets(
    y: ArrayLike, shape: tuple, mask: np.ndarray | None = None
) -> np.ndarray:
    """Returns regression targets in the shape of the predicted mean.

    A target that a mask leaves out may be anything, and becomes 0.
    """
    y = as_array("y", y, dtype="float64")
    if (*y.shape, 1) == shape or y.shape == (*shape, 1):
        y = y.reshape(shape)
    if y.shape != shape:
        raise ValueError(
            "`y` must have the shape of the predicted mean, "
            f"{shape}. Received: y of shape {y.shape}"
        )
    return numbers("y", y if mask is None else np.where(mask, y, 0.0))


def labels_of(prediction: Any, y: ArrayLike | None) -> ArrayLike:
    """Returns `y`, or if it is `None`, the labels in the prediction."""
    if y is None:
        y = prediction.y
    if y is None:
        raise ValueError(
            "`y` must be given, because the data of the prediction held no "
            "labels. With `on_batch` of `keras_bdl.predict`, pass the labels "
            "in the data: a `tf.data.Dataset` of batches `(x, y)` in place of "
            "arrays. Received: y=None"
        )
    return y


# A block of this many float64 numbers takes 8 MiB and stays in the cache.
BLOCK_ENTRIES = 2**20


def row_blocks(num_rows: int, row_size: int) -> Iterator[slice]:
    """Yields slices that cover all rows of an array, in their order."""
    step = max(1, BLOCK_ENTRIES // max(1, row_size))
    for start in range(0, num_rows, step):
        yield slice(start, min(start + step, num_rows))
