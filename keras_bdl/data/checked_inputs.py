"""What may enter a prediction or an evaluation, checked where it enters."""

import numbers as number_types

import keras
import numpy as np

from keras_bdl import _keras

# Wide enough for the rounding of half precision over a thousand classes.
SUM_TOLERANCE = 2e-2


def check_model(model):
    """Raises an error unless the model is one of Keras."""
    if not isinstance(model, keras.Model):
        raise ValueError(
            "`model` must be a `keras.Model`; wrap a layer as "
            "`keras.Sequential([layer])`. "
            f"Received: model={model!r} of type {type(model).__name__}"
        )
    for layer in _keras.all_layers(model):
        if getattr(layer, "stateful", False):
            raise ValueError(
                "`model` must have no stateful layer: its state would go from "
                "one draw to the next. Make it with `stateful=False`. "
                f"Received: layer={layer.name!r}"
            )


def check_count(name: str, value):
    """Raises an error unless the value is a positive integer."""
    if (
        isinstance(value, bool)
        or not isinstance(value, number_types.Integral)
        or value < 1
    ):
        raise ValueError(
            f"`{name}` must be a positive integer. Received: {name}={value!r}"
        )


def numbers(name: str, values) -> np.ndarray:
    """Returns the values as float64, at least one and none of them NaN."""
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
            f"`{name}` must not hold NaN; leave these examples out or find "
            "where they come from. "
            f"Received: {name} with {np.isnan(array).sum()} NaN among "
            f"{array.size} values"
        )
    return array


def probabilities(name: str, values) -> np.ndarray:
    """Returns the values as an array of distributions on the last axis."""
    checked = numbers(name, values)
    if not checked.ndim:
        raise ValueError(
            f"`{name}` must have the classes on the last axis. "
            f"Received: {name}={values}"
        )
    if checked.min() < 0:
        raise ValueError(
            f"`{name}` must not be negative; logits go through a softmax "
            f"first. Received: {name} with an entry {checked.min():.4g}"
        )
    _check_sums(name, checked)
    return np.asarray(values)


def log_probabilities(name: str, prediction) -> np.ndarray:
    """Returns the log probabilities of a prediction, one row per input."""
    check_classification(name, prediction)
    log_probs = numbers(f"{name}.log_mean", prediction.log_mean)
    log_probs = log_probs.reshape(-1, log_probs.shape[-1])
    _check_sums(name, np.exp(log_probs))
    return log_probs


def check_classification(name: str, prediction):
    """Raises an error unless it is a `ClassificationPrediction`."""
    if getattr(prediction, "task", None) != "classification":
        raise ValueError(
            f"`{name}` must be the prediction of one model output by a "
            "classifier, from `keras_bdl.predict` or "
            "`ClassificationPrediction.from_probabilities`; take several "
            f"outputs one by one. Received: {type(prediction).__name__}"
        )


def _check_sums(name, probs):
    total = probs.sum(-1).ravel()
    worst = total[np.abs(total - 1.0).argmax()]
    if not abs(worst - 1.0) < SUM_TOLERANCE:
        raise ValueError(
            f"`{name}` must hold probabilities that sum to 1 over the "
            "classes; logits go through a softmax first. "
            f"Received: {name} with a sum of {worst:.4g}"
        )


def class_labels(y, shape: tuple) -> np.ndarray:
    """Returns one integer label per input, from integers or one-hot rows.

    Args:
        y: Labels.
        shape: Shape of the prediction, classes on the last axis.
    """
    *inputs, classes = shape
    inputs, y = tuple(inputs), numbers("y", y)
    if y.shape == shape:
        if not (np.isin(y, (0, 1)).all() and (y.sum(-1) == 1).all()):
            raise ValueError(
                "`y` of the shape of the prediction must be one-hot; give the "
                "integer `y.argmax(-1)` where labels are soft. "
                f"Received: y with rows such as {y.reshape(-1, classes)[0]}"
            )
        return y.reshape(-1, classes).argmax(-1)
    if y.shape not in (inputs, (*inputs, 1)):
        raise ValueError(
            "`y` must hold one integer or one one-hot row for each input, of "
            f"shape {inputs} or {shape}. Received: y of shape {y.shape}"
        )
    wrong = (y != np.floor(y)) | (y < 0) | (y >= classes)
    if wrong.any():
        raise ValueError(
            f"`y` must hold integers from 0 to {classes - 1}, the classes of "
            f"the prediction. Received: y with a label {y[wrong][0]:g}"
        )
    return y.reshape(-1).astype("int64")


def targets(y, shape: tuple) -> np.ndarray:
    """Returns regression targets in the shape of the predicted mean."""
    y = numbers("y", y)
    if y.shape == shape:
        return y
    if (*y.shape, 1) == shape or y.shape == (*shape, 1):
        return y.reshape(shape)
    raise ValueError(
        "`y` must have the shape of the predicted mean, "
        f"{shape}. Received: y of shape {y.shape}"
    )


def labels_of(prediction, y):
    """Returns `y`, or the labels that the prediction found in its data."""
    if y is None:
        y = prediction.y
    if y is None:
        raise ValueError(
            "`y` must be given, since the data of the prediction held no "
            "labels. Received: y=None"
        )
    return y
