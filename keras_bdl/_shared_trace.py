"""Operations that many variables or layers have in common, traced once."""

from collections.abc import Callable
from collections.abc import Hashable
from typing import Any

import tensorflow as tf

from keras_bdl._cpu_compilation import pays_to_compile

# The attribute of a graph: the number of its calls, and the traced functions.
_TRACED = "_keras_bdl_shared_traces"

# Networks with more calls than this have long steps, in which calls cost less
# than one per cent.
MOST_INLINED = 16

# Compiling takes 50 milliseconds for each shape. A step saves a millisecond for
# 300,000 weights.
SMALLEST_COMPILED = 2**16


def call_shared(
    function: Callable,
    *args,
    key: Hashable | None = None,
    sizes: bool = False,
    compiled: bool = False,
) -> Any:
    """Returns `function(*args)`; calls with tensors of one rank share a trace.

    A new operation of a graph costs Python about half a millisecond, and the
    update of one variable has up to seventy operations. With this function, the
    graph of a training step has one operation for each variable, a call.
    Before the graph runs, TensorFlow replaces the first 16 calls by their
    operations. Each replacement takes about 25 milliseconds, once, and saves up
    to 75 microseconds in each step, which pays only in small networks.

    Tensors of another dtype have another trace. A trace belongs to the graph in
    which the call stands, so `function` may read variables and tensors of this
    graph. In eager mode, and on several devices, whose variables differ,
    `function` runs as it is.

    Args:
        function: A function, or a method, of tensors and other arguments. It
            treats tensors of all shapes alike, unless `sizes` is `True`. Its
            results depend on nothing else that differs between two calls.
        *args: The arguments, which may be nested. Other arguments than tensors
            are part of the trace.
        key: Two functions with the same key are the same for this purpose.
            Defaults to `None`: the function itself.
        sizes: Whether only tensors of one shape share a trace. The function
            may then depend on static sizes. Defaults to `False`.
        compiled: Whether XLA compiles calls with large tensors if Keras
            compiles nothing, so that a chain of elementwise operations reads
            and writes each tensor once. Make random bits outside of
            `function`: XLA makes them more slowly. Defaults to `False`.

    Returns:
        What `function` returns. Tensors in a graph have no static sizes, unless
        `sizes` is `True`.
    """
    if tf.executing_eagerly() or tf.distribute.has_strategy():
        return function(*args)
    graph = tf.compat.v1.get_default_graph()
    first: tuple[int, dict[Hashable, Callable]] = (0, {})
    calls, traces = getattr(graph, _TRACED, first)
    setattr(graph, _TRACED, (calls + 1, traces))
    leaves = [
        tf.convert_to_tensor(leaf) if tf.is_tensor(leaf) else leaf
        for leaf in tf.nest.flatten(args)
    ]
    kinds = tuple(_kind(leaf, sizes) for leaf in leaves)
    options: dict[str, Any] = {}
    if compiled and pays_to_compile(_size(leaves), at_least=SMALLEST_COMPILED):
        options["jit_compile"] = True
    elif calls >= MOST_INLINED:
        options["experimental_attributes"] = {"_noinline": True}
    name = (function if key is None else key, kinds, *options)
    if name not in traces:
        traces[name] = _traced(function, args, leaves, kinds, options)
    return traces[name](*filter(tf.is_tensor, leaves))


def _kind(leaf, sizes):
    """Returns what a trace depends on: a specification, or type and value."""
    if not tf.is_tensor(leaf):
        return type(leaf), leaf
    rank = leaf.shape.rank
    sizes = leaf.shape if sizes or rank is None else [None] * rank
    return tf.TensorSpec(sizes, leaf.dtype)


def _size(leaves):
    """Returns the number of elements of the largest tensor that has a shape."""
    shapes = [leaf.shape for leaf in leaves if tf.is_tensor(leaf)]
    return max((shape.num_elements() or 0 for shape in shapes), default=0)


def _traced(function, args, leaves, kinds, options):
    def of_tensors(*tensors):
        left = iter(tensors)
        filled = [next(left) if tf.is_tensor(one) else one for one in leaves]
        return function(*tf.nest.pack_sequence_as(args, filled))

    specs = [kind for kind in kinds if isinstance(kind, tf.TensorSpec)]
    traced = tf.function(of_tensors, autograph=False, **options)
    return traced.get_concrete_function(*specs)
