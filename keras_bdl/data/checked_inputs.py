"""Checks of models, labels, probabilities and predictions."""

from typing import Any

import keras
import numpy as np

from keras_bdl import _keras
from keras_bdl.aliases import ArrayLike

# Larger than the rounding error of float16 for a sum over a thousand classes.
SUM_TOLERANCE = 2e-2


def check_model(model: Any) -> None:
    """Raises an error unless `model` is a Keras model without states.

    Args:
        model: The argument.
    """
    if not isinstance(model, keras.Model):
        raise ValueError(
            "`model` must be a `keras.Model`. Wrap a layer as "
            "`keras.Sequential([layer])`. "
            f"Received: model={model!r} of type {type(model).__name__}"
        )
    for layer in _keras.all_layers(model):
        if getattr(layer, "stateful", False):
            raise ValueError(
                "`model` must have no stateful layer, because one sample would "
                "start from the state of another. Use `stateful=False`. "
                f"Received: layer={layer.name!r}"
            )


def numbers(name: str, values: ArrayLike) -> np.ndarray:
    """Returns values as a float64 array that is not empty and has no NaN.

    Args:
        name: Name of the argument.
        values: The argument.
    """
    try:
        array = np.asarray(values, dtype="float64")
    except (TypeError, ValueError):
        raise ValueError(
            f"`{name}` must hold numbers, all rows of one length. "
            f"Received: {name} of type {type(values).__name__}"
        ) from None
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

    Args:
        name: Name of the argument.
        values: The argument.
    """
    checked = numbers(name, values)
    if not checked.ndim:
        raise ValueError(
            f"`{name}` must have the classes on the last axis. "
            f"Received: {name}={values}"
        )
    if checked.min() < 0:
        raise ValueError(
            f"`{name}` must not be negative. Apply a softmax to logits first. "
            f"Received: {name} with an entry {checked.min():.4g}"
        )
    _check_sums(name, checked)
    return np.asarray(values)


def log_probabilities(name: str, prediction: Any) -> np.ndarray:
    """Returns the log probabilities of a prediction, one row per input.

    Args:
        name: Name of the argument.
        prediction: A `ClassificationPrediction`.
    """
    check_classification(name, prediction)
    log_probs = numbers(f"{name}.log_mean", prediction.log_mean)
    log_probs = log_probs.reshape(-1, log_probs.shape[-1])
    _check_sums(name, np.exp(log_probs))
    return log_probs


def check_classification(name: str, prediction: Any) -> None:
    """Raises an error unless a value is a `ClassificationPrediction`.

    Args:
        name: Name of the argument.
        prediction: The argument.
    """
    if getattr(prediction, "task", None) != "classification":
        raise ValueError(
            f"`{name}` must be a `ClassificationPrediction` for one model "
            "output, from `keras_bdl.predict` or "
            "`ClassificationPrediction.from_probabilities`. Pass several "
            f"outputs one by one. Received: {type(prediction).__name__}"
        )


def _check_sums(name, probs):
    total = probs.sum(-1).ravel()
    worst = total[np.abs(total - 1.0).argmax()]
    if not abs(worst - 1.0) < SUM_TOLERANCE:
        raise ValueError(
            f"`{name}` must hold probabilities that sum to 1 over the "
            "classes. Apply a softmax to logits first. "
            f"Received: {name} with a sum of {worst:.4g}"
        )


def class_labels(y: ArrayLike, shape: tuple) -> np.ndarray:
    """Returns one integer label per input.

    Args:
        y: Integers or one-hot rows.
        shape: Shape of the prediction, classes on the last axis.
    """
    inputs, classes = shape[:-1], shape[-1]
    y = numbers("y", y)
    if y.shape == shape:
        if not (np.isin(y, (0, 1)).all() and (y.sum(-1) == 1).all()):
            raise ValueError(
                "`y` must be one-hot if it has the shape of the prediction. "
                "For soft labels, pass the integers `y.argmax(-1)`. "
                f"Received: y with rows such as {y.reshape(-1, classes)[0]}"
            )
        return y.reshape(-1, classes).argmax(-1)
    if y.shape not in (inputs, (*inputs, 1)):
        raise ValueError(
            "`y` must hold one integer or one one-hot row for each input, in "
            f"shape {inputs} or {shape}. Received: y of shape {y.shape}"
        )
    wrong = (y != np.floor(y)) | (y < 0) | (y >= classes)
    if wrong.any():
        raise ValueError(
            f"`y` must hold integers from 0 to {classes - 1}, the classes of "
            f"the prediction. Received: y with a label {y[wrong][0]:g}"
        )
    return y.reshape(-1).astype("int64")


def targets(y: ArrayLike, shape: tuple) -> np.ndarray:
    """Returns regression targets in the shape of the predicted mean.

    Args:
        y: Targets. A last axis of length 1 may be missing or added.
        shape: Shape of the predicted mean.
    """
    y = numbers("y", y)
    if y.shape == shape:
        return y
    if (*y.shape, 1) == shape or y.shape == (*shape, 1):
        return y.reshape(shape)
    raise ValueError(
        "`y` must have the shape of the predicted mean, "
        f"{shape}. Received: y of shape {y.shape}"
    )


def labels_of(prediction: Any, y: ArrayLike | None) -> ArrayLike:
    """Returns `y`, or if it is `None`, the labels in the prediction.

    Args:
        prediction: A `Prediction`.
        y: Labels, or `None`.
    """
    if y is None:
        y = prediction.y
    if y is None:
        raise ValueError(
            "`y` must be given, because the data of the prediction held no "
            "labels. Received: y=None"
        )
    return y
