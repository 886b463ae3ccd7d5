"""Traced functions of a model, kept for the next prediction."""

import functools
import threading
import weakref
from collections.abc import Callable
from collections.abc import Hashable
from collections.abc import Iterable
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from keras_bdl import _keras
from keras_bdl._backend import in_several_workers
from keras_bdl.prediction._stateless_call import TRACING


class ModelCache:
    """Keeps the last few functions made for each model.

    The functions live as long as the model's own `predict_function`. A model
    that is compiled again, or whose dropout is turned on, has another
    `predict_function` and gets new functions here. A model with an added,
    removed or replaced layer gets new functions, too.

    A kept function must hold only a `weakref.ref` of the model. Otherwise the
    model would never be freed.

    Args:
        size: Number of functions to keep for one model. Defaults to `8`.
    """

    def __init__(self, size: int = 8):
        self.size = size
        self._entries: weakref.WeakKeyDictionary = weakref.WeakKeyDictionary()
        self._changing = threading.Lock()

    def get(self, model: keras.Model, key: Any, make: Callable) -> Any:
        """Returns the kept function of a model and a key, or makes a new one.

        Args:
            model: A Keras model.
            key: Everything that the function depends on besides the model.
            make: Returns a new function.
        """
        key = (key, references(_keras.all_layers(model)))
        with self._changing:
            model.make_predict_function()  # does nothing if one exists
            entries = self._entries.setdefault(model.predict_function, [])
            for known, entry in entries:
                if known == key:
                    return entry
            entries.append((key, make()))
            del entries[: -self.size]
            return entries[-1][1]


def references(layers: Iterable) -> list[weakref.ref]:
    """Returns weak references: two lists are equal for the same layers only.

    A list of `id`s would not do: a new layer may get the `id` of a deleted
    layer.

    Args:
        layers: Layers of a model.
    """
    return [weakref.ref(layer) for layer in layers]


def shards_of(strategy: tf.distribute.Strategy, inputs: Any) -> Any:
    """Returns one part of a batch for each replica, all of equal size.

    Args:
        strategy: The strategy.
        inputs: Nested arrays, the same on all workers. The last example is
            repeated if the number of replicas does not divide the batch size.
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


def on_all_replicas(
    strategy: tf.distribute.Strategy, function: Callable
) -> Callable:
    """Returns a function that runs on the shards of all replicas.

    In one process, the function joins the results of the replicas without
    communication between the replicas. So several threads may call the
    function, also while another thread trains.

    Args:
        strategy: The strategy.
        function: Function from nested tensors to nested tensors.
    """

    @tf.function(autograph=False, reduce_retracing=True)
    def run(shards, *args):
        with TRACING:
            results = strategy.run(function, (shards, *args))
        return keras.tree.map_structure(joined, results)

    def joined(parts):
        if in_several_workers(strategy):
            return strategy.gather(parts, axis=0)
        # A gather would mix the replicas of several threads.
        return tf.concat(strategy.experimental_local_results(parts), axis=0)

    return run


def traced(
    model: keras.Model, function: Callable, *, sharded: bool = False
) -> Callable:
    """Returns `function`, compiled like the model's own functions.

    Each shape and dtype of an example has its own trace. In a trace, only the
    batch axis may vary, and axes that the model declares as `None`. If more
    axes could vary, inputs of a wrong shape would pass the model's checks and
    fail in the graph. One thread traces at a time.

    Args:
        model: A Keras model.
        function: Function whose first argument is the inputs of the model.
        sharded: Whether each replica of the model's strategy runs the
            function on a part of the inputs. The results are joined on their
            first axis, which may be longer than the batch: see `shards_of`.
            Defaults to `False`.
    """
    if model.run_eagerly:
        return _in_turn(function)
    jit_compile = model.jit_compile
    strategy = model.distribute_strategy
    sharded = sharded and strategy.num_replicas_in_sync > 1

    def make():
        if not sharded:
            return _compiled(_in_turn(function), jit_compile)
        # Replicas trace in threads that wait for one another, so they cannot
        # take turns.
        run = on_all_replicas(strategy, _compiled(function, jit_compile))
        return lambda inputs, *args: run(shards_of(strategy, inputs), *args)

    return _made_for_each_shape(model, make)


def in_a_graph(model: keras.Model, function: Callable) -> Callable:
    """Returns `function`, compiled without the settings of a model.

    The traces are those of `traced`.

    Args:
        model: A Keras model.
        function: Function whose first argument is the inputs of the model.
    """
    return _made_for_each_shape(model, lambda: _compiled(_in_turn(function)))


def _compiled(function, jit_compile=None):
    return tf.function(
        function,
        autograph=False,
        jit_compile=jit_compile,
        reduce_retracing=True,
    )


def _made_for_each_shape(model, make):
    """Returns a function that calls another function for each shape.

    Args:
        model: The Keras model that receives the inputs.
        make: Returns a new function, whose first argument is the inputs.
    """
    functions: dict[Hashable, Callable] = {}
    declared = _declared_shapes(model)

    def call(inputs, *args):
        key = _signature(inputs, declared)
        # Another thread may remove the function at any time.
        found = functions.get(key) or functions.setdefault(key, make())
        try:
            return found(inputs, *args)
        except Exception:
            # After one failure, TensorFlow's function may return `None`.
            functions.pop(key, None)
            raise

    return call


def _in_turn(function):
    # TensorFlow counts traces by the code of a function, and warns of five. A
    # partial has no code: each model is counted for itself.
    return functools.partial(_call_in_turn, function)


def _call_in_turn(function, *args):
    with TRACING:
        return function(*args)


def _declared_shapes(model):
    """Returns the shapes of the flattened inputs, `[]` if not declared."""
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
