"""Shapes of the targets and outputs of a network that predicts a Gaussian."""

from keras import ops


def aligned_targets(y_true, mean):
    """Returns targets in the shape and the dtype of the predicted mean.

    Without this function, shapes `(batch,)` and `(batch, 1)` would broadcast to
    `(batch, batch)`.

    Args:
        y_true: The targets.
        mean: The means, of the same shape or with one more axis of size 1 at
            the end.
    """
    shape = tuple(mean.shape)
    if shape[-1:] == (1,) and len(y_true.shape) == len(shape) - 1:
        y_true = ops.expand_dims(y_true, -1)
    known = [
        (a, b)
        for a, b in zip(y_true.shape, shape, strict=False)
        if a is not None and b is not None
    ]
    same_rank = len(y_true.shape) == len(shape)
    if not same_rank or any(a != b for a, b in known):
        raise ValueError(
            f"`y_true` must have the shape {shape} of the predicted mean. "
            f"Received: y_true of shape {tuple(y_true.shape)}"
        )
    return ops.cast(y_true, mean.dtype)


def split_moments(outputs, alternative: str):
    """Returns the means and the standard deviations on the last axis.

    Args:
        outputs: Outputs of the network.
        alternative: Code that the error message suggests for a network that
            predicts the mean alone.
    """
    shape = tuple(outputs.shape)
    if len(shape) < 2 or (shape[-1] is not None and shape[-1] % 2):
        raise ValueError(
            "`y_pred` must hold means, then as many standard deviations, on "
            "its last axis. If the network predicts the mean alone, write "
            f"{alternative}. Received: y_pred of shape {shape}"
        )
    return ops.split(outputs, 2, axis=-1)
