"""What may enter an evaluation, checked where it enters."""

import numpy as np

# Wide enough for the rounding of half precision over a thousand classes.
SUM_TOLERANCE = 2e-2


def numbers(name: str, values) -> np.ndarray:
    """Returns the values as float64, at least one and none of them NaN."""
    array = np.asarray(values, dtype="float64")
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


def log_probabilities(name: str, prediction) -> np.ndarray:
    """Returns the log probabilities of a prediction, one row per input."""
    log_probs = numbers(f"{name}.log_mean", prediction.log_mean)
    log_probs = log_probs.reshape(-1, log_probs.shape[-1])
    total = np.exp(log_probs).sum(-1)
    worst = total[np.abs(total - 1.0).argmax()]
    if not abs(worst - 1.0) < SUM_TOLERANCE:
        raise ValueError(
            f"`{name}` must hold probabilities that sum to 1 over the "
            "classes; logits go through a softmax first. "
            f"Received: {name} with a sum of {worst:.4g}"
        )
    return log_probs


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
