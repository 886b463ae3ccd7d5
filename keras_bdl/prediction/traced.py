"""Tracing a function of a model as the model itself would."""

import functools

import keras
import tensorflow as tf

from keras_bdl.prediction.shards import on_all_replicas
from keras_bdl.prediction.shards import shards_of
from keras_bdl.prediction.stateless_call import TRACING


def traced(model, function, sharded: bool = False):
    """Returns `function` compiled the way the model's own functions are.

    There is one trace for each shape and dtype of an example, and only the
    batch axis may vary within it. With the other axes left open as well,
    inputs of a wrong shape would pass the model's own checks, and fail in the
    graph. Axes that the model itself leaves open stay open. Threads take turns
    at tracing.

    Args:
        model: A Keras model.
        function: Takes the inputs of the model and then anything else.
        sharded: Whether each replica of the model's strategy is to run the
            function on a part of the inputs. Its results are nested tensors
            with the examples on the first axis, and there may be more of
            these than inputs. Defaults to `False`.
    """
    if model.run_eagerly:
        return _in_turn(function)
    functions = {}
    declared = _declared_shapes(model)
    jit_compile = model.jit_compile
    strategy = model.distribute_strategy
    sharded = sharded and strategy.num_replicas_in_sync > 1

    def make():
        compiled = functools.partial(
            tf.function,
            autograph=False,
            jit_compile=jit_compile,
            reduce_retracing=True,
        )
        if sharded:
            # Replicas are threads that wait for one another.
            return on_all_replicas(strategy, compiled(function))
        return compiled(_in_turn(function))

    def call(inputs, *args):
        key = _signature(inputs, declared)
        # One thread may forget the function while another one calls it.
        compiled = functions.get(key) or functions.setdefault(key, make())
        if sharded:
            inputs = shards_of(strategy, inputs)
        try:
            return compiled(inputs, *args)
        except Exception:
            # TensorFlow may return `None` from a function that failed once.
            functions.pop(key, None)
            raise

    return call


def _in_turn(function):
    def call(*args):
        with TRACING:
            return function(*args)

    return call


def _declared_shapes(model):
    """Shapes of the flattened inputs, where the model was made with them."""
    tensors = keras.tree.flatten(getattr(model, "inputs", None) or [])
    return [tuple(tensor.shape) for tensor in tensors]


def _signature(inputs, declared):
    leaves = keras.tree.flatten_with_path(inputs)
    if len(declared) != len(leaves):
        declared = [()] * len(leaves)
    return tuple(
        (path, str(array.dtype), _shape_of_example(array.shape, known))
        for (path, array), known in zip(leaves, declared, strict=True)
    )


def _shape_of_example(shape, declared):
    if len(shape) != len(declared):
        return tuple(shape[1:])
    return tuple(
        None if known is None else size
        for size, known in zip(shape[1:], declared[1:], strict=True)
    )
