"""Dropout masks of recurrent cells, which Keras keeps as attributes."""

import contextlib
import threading

# What reads and writes the attributes.
_METHODS = (
    "get_dropout_mask",
    "get_recurrent_dropout_mask",
    "reset_dropout_mask",
    "reset_recurrent_dropout_mask",
)
# Held while the number of blocks around a cell changes.
_CHANGING = threading.Lock()
_BLOCKS = {}


class _Masks(threading.local):
    of_cells = {}


_HERE = _Masks()


@contextlib.contextmanager
def own_masks(model):
    """Gives this thread masks of its own, for the length of a block.

    A call of a recurrent layer makes masks, uses them in all steps, and
    forgets them. Another thread that calls the layer in the meantime would
    use them, too, or forget them too early.

    Args:
        model: A built Keras model.
    """
    cells = [
        layer
        for layer in model._flatten_layers()
        if all(hasattr(layer, name) for name in _METHODS)
    ]
    outer = _HERE.of_cells
    _HERE.of_cells = {id(cell): _OwnMasks(cell) for cell in cells}
    with _CHANGING:
        for cell in cells:
            _BLOCKS[id(cell)] = _BLOCKS.get(id(cell), 0) + 1
            if _BLOCKS[id(cell)] == 1:
                _install(cell)
    try:
        yield
    finally:
        _HERE.of_cells = outer
        with _CHANGING:
            for cell in cells:
                _BLOCKS[id(cell)] -= 1
                if not _BLOCKS[id(cell)]:
                    del _BLOCKS[id(cell)]
                    _remove(cell)


class _OwnMasks:
    """Is a cell to its methods, and keeps the attributes that they set."""

    def __init__(self, cell):
        self._cell = cell
        self._dropout_mask = None
        self._recurrent_dropout_mask = None

    def __getattr__(self, name):
        return getattr(self._cell, name)


def _install(cell):
    for name in _METHODS:
        # Not `setattr`: Keras would track it as a part of the layer.
        vars(cell)[name] = _of_this_thread(cell, name)


def _remove(cell):
    for name in _METHODS:
        del vars(cell)[name]


def _of_this_thread(cell, name):
    method = getattr(type(cell), name)

    def of_this_thread(*args, **kwargs):
        masks = _HERE.of_cells.get(id(cell), cell)
        return method(masks, *args, **kwargs)

    return of_this_thread
