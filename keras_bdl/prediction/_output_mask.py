"""The masks that layers have passed on to the outputs of a model."""

from collections.abc import Sequence
from typing import Any

import keras
from keras import ops

from keras_bdl import _keras


def masks_of(outputs: Any) -> list:
    """Returns the mask of each of the flattened outputs, or `None`.

    A mask is as in Keras: `True` where an entry counts, with the first axes of
    the output. A mask of positions that the output no longer has is `None`.

    Args:
        outputs: The nested outputs of a model.
    """
    return [_mask_of(tensor) for tensor in keras.tree.flatten(outputs)]


def with_masks(values: list[dict[str, Any]], masks: Sequence) -> list:
    """Returns the values of each output, with its `"mask"` if it has one.

    Args:
        values: A dictionary for each output.
        masks: The mask of each of the flattened outputs, or `None`. A function
            `moments` makes one output of all: it gets the first mask.
    """
    if len(values) == 1:
        masks = [m for m in masks if m is not None][:1] or [None]
    return [
        terms if mask is None else {**terms, "mask": mask}
        for terms, mask in zip(values, masks, strict=True)
    ]


def set_mask(tensor: Any, mask: Any) -> None:
    """Passes a mask on to a tensor, if the tensor has the masked positions.

    Args:
        tensor: A tensor.
        mask: A mask.
    """
    if _fits(mask.shape, tensor.shape):
        _keras.set_mask(tensor, mask)


def _mask_of(tensor):
    mask = _keras.mask_of(tensor)
    if mask is None:
        return None
    mask = ops.cast(mask, "bool")
    # The last axis holds the classes or the targets of a position.
    shape = tensor.shape[: max(1, len(tensor.shape) - 1)]
    return mask if _fits(mask.shape, shape) else None


def _fits(mask, shape):
    """Returns whether the axes of a mask may be the first ones of a shape."""
    return len(mask) <= len(shape) and all(
        known is None or size is None or known == size
        for known, size in zip(mask, shape, strict=False)
    )
