"""The variables that count as trained when rules look at a layer."""

import contextlib
import threading
from collections.abc import Iterable
from collections.abc import Iterator
from typing import Any

import keras

_HERE = threading.local()


def is_trained(variable: Any) -> bool:
    """Returns whether a variable is trainable, or counts as trained here.

    Args:
        variable: A Keras variable.
    """
    return variable.trainable or id(variable) in getattr(_HERE, "ids", ())


def trained_variables(layer: keras.layers.Layer) -> list:
    """Returns the variables of a layer, with inner ones, that are trained.

    Args:
        layer: A built Keras layer.
    """
    if layer.trainable:
        return [v for v in layer.variables if is_trained(v)]
    ids = getattr(_HERE, "ids", ())
    return [v for v in layer.variables if id(v) in ids]


@contextlib.contextmanager
def counted_as_trained(variables: Iterable) -> Iterator[None]:
    """Counts variables as trained inside a block, in this thread.

    A posterior may cover variables that were frozen after training. The flag
    `trainable` of a variable does not change: other threads may use it.

    Args:
        variables: Keras variables.
    """
    before: frozenset[int] = getattr(_HERE, "ids", frozenset())
    _HERE.ids = before | {id(v) for v in variables}
    try:
        yield
    finally:
        _HERE.ids = before
