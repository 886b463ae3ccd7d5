"""Traces the functions of a model, and keeps the traces."""

import functools
import threading
import weakref

import keras
import numpy as np
import tensorflow as tf

from keras_bdl import _keras
from keras_bdl.distribute.keras_fixes import in_several_workers
from keras_bdl.prediction.stateless_call import TRACING


class ModelCache:
    """The last few functions made for each model.

    They are kept with the function that the model itself predicts with, and
    never touch it. So they live as long: a model that is compiled again, or
    whose dropout is turned on, has another one and gets others here. So does
    one that has gained, lost or changed a layer.

    What is kept must not hold the model, or it would never be freed: hold a
    `weakref.ref` of it.

    Args:
        size: How many to keep for one model. Defaults to `8`.
    """

    def __init__(self, size: int = 8):
        self.size = size
        self._entries = weakref.WeakKeyDictionary()
        self._changing = threading.Lock()

    def get(self, model, key, make):
        """Returns the entry of a model and key, made by `make()` if new."""
        key = (key, references(_keras.all_layers(model)))
        with self._changing:
            model.make_predict_function()  # unless it has one
            entries = self._entries.setdefault(model.predict_function, [])
            for known, entry in entries:
                if known == key:
                    return entry
            entries.append((key, make()))
            del entries[: -self.size]
            return entries[-1][1]


def references(layers):
    """Returns what equals that of the same layers and of no others, ever.

    The `id` of a layer that is gone may be given to a new one.
    """
    return [weakref.ref(layer) for layer in layers]


def shards_of(strategy, inputs):
    """Gives each replica its part of a batch, all parts of one size.

    Args:
        strategy: The strategy.
        inputs: Nested arrays, the same in all workers. Examples are repeated
            where the replicas do not divide their number.
    """
    replicas = strategy.num_replicas_in_sync
    examples = len(keras.tree.flatten(inputs)[0])
    size = -(-examples // replicas)

    def shard(context):
        start = int(context.replica_id_in_sync_group) * size
        rows = np.minimum(np.arange(start, start + size), examples - 1)
        return keras.tree.map_structure(
            lambda array: tf.convert_to_tensor(np.asarray(array)[rows]), inputs
        )

    return strategy.experimental_distribute_values_from_function(shard)


def on_all_replicas(strategy, function):
    """Returns a function of what `shards_of` returns.

    In one process, replicas do not wait for one another, so several threads
    may call the function, and another one may train.

    Args:
        strategy: The strategy.
        function: Of nested tensors, which returns nested tensors.
    """

    @tf.function(autograph=False, reduce_retracing=True)
    def run(shards, *args):
        with TRACING:
            results = strategy.run(function, (shards, *args))
        return keras.tree.map_structure(joined, results)

    def joined(parts):
        if in_several_workers(strategy):
            return strategy.gather(parts, axis=0)
        # Replicas that gather must not meet those of another thread.
        return tf.concat(strategy.experimental_local_results(parts), axis=0)

    return run


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
