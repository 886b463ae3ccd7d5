"""Dropout masks of recurrent cells, which Keras keeps as attributes."""

import contextlib
import functools
from collections.abc import Iterator

import keras

from keras_bdl import _keras
from keras_bdl.replaced_in_thread import replaced

# The methods that read and write the attributes.
_METHODS = (
    "get_dropout_mask",
    "get_recurrent_dropout_mask",
    "reset_dropout_mask",
    "reset_recurrent_dropout_mask",
)


@contextlib.contextmanager
def own_masks(model: keras.Model) -> Iterator[None]:
    """Gives this thread masks of its own inside a block.

    A recurrent layer makes masks, uses the masks in all steps of a call, and
    deletes them. Without this block, another thread that calls the layer in
    the meantime would use the same masks, or delete them too early.

    Args:
        model: A built Keras model.
    """
    with contextlib.ExitStack() as stack:
        for cell in _keras.all_layers(model):
            if not all(hasattr(cell, name) for name in _METHODS):
                continue
            masks = _OwnMasks(cell)
            for name in _METHODS:
                method = functools.partial(_of_masks, masks, name)
                stack.enter_context(replaced(cell, name, method))
        yield


class _OwnMasks:
    """Stands in for a cell in its methods, and has its own masks."""

    def __init__(self, cell):
        self._cell = cell
        # The names of the attributes of Keras.
        self._dropout_mask = None
        self._recurrent_dropout_mask = None

    def __getattr__(self, name):
        return getattr(self._cell, name)


def _of_masks(masks, name, original, *args, **kwargs):
    del original  # would use the masks of the cell
    return getattr(type(masks._cell), name)(masks, *args, **kwargs)
