"""Operations that many variables have in common, traced once."""

from collections.abc import Callable
from typing import Any

import tensorflow as tf

# The attribute of a graph that holds the functions traced in it.
_TRACED = "_keras_bdl_shared_traces"


def call_shared(function: Callable, *args) -> Any:
    """Returns `function(*args)`; calls with tensors of one rank share a trace.

    A new operation of a graph costs Python about half a millisecond, and the
    update of one variable has up to seventy operations. With this function, the
    graph of a training step has one operation for each variable, a call.
    TensorFlow replaces each call by its operations before the graph runs.

    Tensors of another dtype have another trace. A trace belongs to the graph in
    which the call stands, so `function` may read variables and tensors of this
    graph. In eager mode, and on several devices, whose variables differ,
    `function` runs as it is.

    Args:
        function: A function, or a method, of tensors and other arguments. It
            treats tensors of all shapes alike. Its results depend on nothing
            else that differs between two calls.
        *args: The arguments. Other arguments than tensors are part of the
            trace.

    Returns:
        What `function` returns. Tensors in a graph have no static sizes.
    """
    if tf.executing_eagerly() or tf.distribute.has_strategy():
        return function(*args)
    graph = tf.compat.v1.get_default_graph()
    functions = getattr(graph, _TRACED, None)
    if functions is None:
        functions = {}
        setattr(graph, _TRACED, functions)
    if function not in functions:
        functions[function] = tf.function(function, autograph=False)
    trace = functions[function].get_concrete_function(*map(_of_rank, args))
    return trace(*(tf.convert_to_tensor(a) for a in args if tf.is_tensor(a)))


def _of_rank(argument):
    if not tf.is_tensor(argument):
        return argument
    rank = argument.shape.rank
    sizes = None if rank is None else [None] * rank
    return tf.TensorSpec(sizes, argument.dtype)
