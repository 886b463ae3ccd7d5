"""Loops of a graph, written out for file formats without such loops."""

import contextlib
import contextvars
from collections.abc import Callable
from collections.abc import Iterator
from typing import Any

import tensorflow as tf

_UNROLLED = contextvars.ContextVar("unrolled", default=False)


@contextlib.contextmanager
def unrolled_loops() -> Iterator[None]:
    """Writes out the loops of the graphs that are traced inside a block.

    LiteRT and ONNX cannot run the loops of TensorFlow, or run them slowly.
    """
    token = _UNROLLED.set(True)
    try:
        yield
    finally:
        _UNROLLED.reset(token)


def unrolls_loops() -> bool:
    """Returns whether `unrolled_loops` is in effect."""
    return _UNROLLED.get()


def stacked(function: Callable, start: Any, size: Any, like: Any) -> Any:
    """Returns the results of a function of an index, stacked on a new axis.

    Args:
        function: Function of an integer that returns nested tensors.
        start: First index. Must be an integer if loops are unrolled.
        size: Number of indices. Must be an integer if loops are unrolled.
        like: A `tf.TensorSpec` for each tensor of a result, nested.
    """
    if not unrolls_loops():
        indices = tf.range(start, start + size)
        return tf.map_fn(function, indices, fn_output_signature=like)
    results = [function(i) for i in range(start, start + size)]
    return tf.nest.map_structure(lambda *rows: tf.stack(rows), *results)
