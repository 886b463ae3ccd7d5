"""Calls of a model as a function of its weights, traced once for each shape."""

import contextlib
import functools
import threading
import weakref
from collections.abc import Callable
from collections.abc import Hashable
from collections.abc import Iterable
from collections.abc import Iterator
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_bdl import _keras
from keras_bdl._backend import compiled
from keras_bdl._backend import in_several_workers
from keras_bdl._replaced_in_thread import replaced
from keras_bdl.distribute._replicas import variable_copies
from keras_bdl.distribute._workers import replica_arrays


def check_model(model: Any) -> None:
    """Raises an error unless `model` is a Keras model without states."""
    if not isinstance(model, keras.Model):
        raise ValueError(
            "`model` must be a `keras.Model`. Wrap a layer as "
            "`keras.Sequential([layer])`. "
            f"Received: model={model!r} of type {type(model).__name__}"
        )
    for layer in _keras.all_layers(model):
        if getattr(layer, "stateful", False):
            raise ValueError(
                "`model` must have no stateful layer, because one sample would "
                "start from the state of another. Use `stateful=False`. "
                f"Received: layer={layer.name!r}"
            )


# The methods of recurrent cells that read and write dropout masks.
_METHODS = (
    "get_dropout_mask",
    "get_recurrent_dropout_mask",
    "reset_dropout_mask",
    "reset_recurrent_dropout_mask",
)


@contextlib.contextmanager
def own_masks(model: keras.Model) -> Iterator[None]:
    """Gives this thread its own dropout masks inside a block.

    A recurrent layer makes masks, uses the masks in all steps of a call, and
    deletes them. Without this block, another thread that calls the layer in
    the meantime would use the same masks, or delete them too early.
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
    """Replaces a cell as `self` of its methods, and has its own masks."""

    def __init__(self, cell: Any):
        self._cell = cell
        # The names of the attributes of Keras.
        self._dropout_mask = None
        self._recurrent_dropout_mask = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cell, name)


def _of_masks(
    masks: _OwnMasks, name: str, original: Any, *args: Any, **kwargs: Any
) -> Any:
    del original  # would use the masks of the cell
    return getattr(type(masks._cell), name)(masks, *args, **kwargs)


# More than the random calls of one layer in one batch.
_USES = 4096


def values_of(model: keras.Model) -> list:
    """Returns the current values of `model.variables` as tensors.

    In training, each replica keeps its own BatchNorm statistics. The result
    has the statistics of the first replica, on all workers.
    """
    strategy = model.distribute_strategy
    if strategy.num_replicas_in_sync == 1:
        return [ops.convert_to_tensor(v.value) for v in model.variables]
    values = [
        ops.convert_to_tensor(variable_copies(v)[0]) for v in model.variables
    ]
    own = [
        i
        for i, v in enumerate(model.variables)
        if not v.trainable and keras.backend.is_float_dtype(v.dtype)
    ]
    if own:
        local = [[np.asarray(values[i]) for i in own]]
        local *= len(strategy.extended.worker_devices)
        first = replica_arrays(strategy, local)[0]
        for i, value in zip(own, first, strict=True):
            values[i] = _as_value(model.variables[i], value)
    return values


def with_values(model: keras.Model, values: list, assignments: list) -> list:
    """Returns `values` with new values for some variables.

    If several assignments have the same variable, the last one applies.
    """
    values = list(values)
    if not assignments:
        return values
    position = {id(v): i for i, v in enumerate(model.variables)}
    for variable, value in assignments:
        values[position[id(variable)]] = _as_value(variable, value)
    return values


def seed_states(model: keras.Model) -> list[int]:
    """Returns the positions of the seed generators in `model.variables`."""
    return [
        i
        for i, v in enumerate(model.variables)
        if v.name == "seed_generator_state" and tuple(v.shape) == (2,)
    ]


def moved_on(seed: Any, sample: int, batch: Any) -> Any:
    """Returns a different seed for each posterior sample and batch."""
    dtype = keras.backend.standardize_dtype(seed.dtype)
    if isinstance(batch, int):
        return seed + np.array([sample, batch * _USES]).astype(dtype)
    return seed + ops.cast(ops.stack([sample, batch * _USES]), dtype)


def _as_value(variable: keras.Variable, value: Any) -> keras.KerasTensor:
    return ops.convert_to_tensor(value, dtype=variable.dtype)


# Held while a model is traced, because layers may keep tensors as attributes
# during a trace.
TRACING = threading.RLock()


def stateless_call(
    model: keras.Model,
    inputs: Any,
    scope: keras.StatelessScope,
    *,
    training: bool,
) -> Any:
    """Returns `model(inputs)`, computed with the values of a scope.

    Other threads may train the model or predict with it at the same time.
    """
    known = len(model.variables)
    with scope, own_masks(model):
        outputs = _Call(lambda x: model(x, training=training))(inputs)
    if len(model.variables) != known:
        raise ValueError(
            "`model` must create all its variables before a prediction, but "
            "it created new ones when called. Call "
            f"`model(x, training={training})` once before you make the "
            "posterior. Received: new variables in model="
            f"{model.name!r}, {len(model.variables)} instead of {known}"
        )
    return outputs


class _Call(keras.layers.Layer):
    """A layer that only calls a function, without losses or inner layers.

    When the outermost layer is called, Keras clears the losses of this layer
    and of all layers inside. An object of this class is the outermost layer in
    place of the model. So Keras does not clear the losses of the model, which
    another thread may need.
    """

    def __init__(self, function: Callable):
        # A model in mixed precision opens its own autocast scope.
        super().__init__(name="stateless_call", dtype="float32", autocast=False)
        self._function = function
        self.built = True

    def call(self, inputs: Any) -> Any:
        return self._function(inputs)


class ModelCache:
    """Keeps the last few functions made for each model.

    The functions live as long as the model's own `predict_function`. A model
    that is compiled again, or whose dropout is turned on, has another
    `predict_function` and gets new functions here. A model with an added,
    removed or replaced layer gets new functions, too.

    A kept function must hold only a `weakref.ref` of the model. Otherwise the
    model would never be freed.
    """

    def __init__(self, size: int = 8):
        self.size = size
        self._entries: weakref.WeakKeyDictionary = weakref.WeakKeyDictionary()
        self._changing = threading.Lock()

    def get(self, model: keras.Model, key: Any, make: Callable) -> Any:
        """Returns the kept function of a model and a key, or a new one."""
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
    """
    return [weakref.ref(layer) for layer in layers]


def shards_of(strategy: Any, inputs: Any) -> Any:
    """Returns one part of a batch for each replica, all of equal size.

    The last example is repeated if the replicas do not divide the batch size.
    """
    replicas = strategy.num_replicas_in_sync
    examples = len(keras.tree.flatten(inputs)[0])
    size = -(-examples // replicas)

    def shard(context: Any) -> Any:
        start = int(context.replica_id_in_sync_group) * size
        rows = np.minimum(np.arange(start, start + size), examples - 1)
        return keras.tree.map_structure(
            lambda a: ops.convert_to_tensor(np.asarray(a)[rows]), inputs
        )

    return strategy.experimental_distribute_values_from_function(shard)


def on_all_replicas(strategy: Any, function: Callable) -> Callable:
    """Returns a function that runs on the shards of all replicas.

    In one process, the function joins the results of the replicas without
    communication between the replicas. So several threads may call the
    function, also while another thread trains.
    """

    def run(shards: Any, *args: Any) -> Any:
        with TRACING:
            results = strategy.run(function, (shards, *args))
        return keras.tree.map_structure(joined, results)

    def joined(parts: Any) -> Any:
        if in_several_workers(strategy):
            return strategy.gather(parts, axis=0)
        # A gather would mix the replicas of several threads.
        parts = strategy.experimental_local_results(parts)
        return ops.concatenate(parts, axis=0)

    return compiled(run)


def traced(
    model: keras.Model, function: Callable, *, sharded: bool = False
) -> Callable:
    """Returns `function`, compiled like the model's own functions.

    Each shape and dtype of an example has its own trace. In a trace, only the
    batch axis may vary, and axes that the model declares as `None`. If more
    axes could vary, inputs of a wrong shape would pass the model's checks and
    fail in the graph. One thread traces at a time.

    The first argument of the function is the inputs of the model. If `sharded`,
    each replica runs the function on a part of them, and the results are joined
    on their first axis, which may be longer than the batch.
    """
    if model.run_eagerly:
        return _in_turn(function)
    jit_compile = model.jit_compile
    strategy = model.distribute_strategy
    sharded = sharded and strategy.num_replicas_in_sync > 1

    def make() -> Any:
        if not sharded:
            return compiled(_in_turn(function), jit_compile=jit_compile)
        # Replicas trace in threads that wait for one another, so they cannot
        # take turns.
        run = on_all_replicas(
            strategy, compiled(function, jit_compile=jit_compile)
        )
        return lambda inputs, *args: run(shards_of(strategy, inputs), *args)

    return _made_for_each_shape(model, make)


def in_a_graph(model: keras.Model, function: Callable) -> Callable:
    """Returns `function`, compiled without the settings of a model.

    The traces are those of `traced`.
    """
    return _made_for_each_shape(model, lambda: compiled(_in_turn(function)))


def _made_for_each_shape(model: keras.Model, make: Callable) -> Callable:
    """Returns a function that calls another function for each shape."""
    functions: dict[Hashable, Callable] = {}
    declared = _declared_shapes(model)

    def call(inputs: Any, *args: Any) -> Any:
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


def _in_turn(function: Callable) -> Callable:
    # TensorFlow counts traces by the code of a function, and warns of five. A
    # partial has no code: each model is counted for itself.
    return functools.partial(_call_in_turn, function)


def _call_in_turn(function: Callable, *args: Any) -> Any:
    with TRACING:
        return function(*args)


def _declared_shapes(model: keras.Model) -> list[tuple]:
    """Returns the shapes of the flattened inputs, `[]` if not declared."""
    tensors = keras.tree.flatten(getattr(model, "inputs", None) or [])
    return [tuple(tensor.shape) for tensor in tensors]


def _signature(inputs: Any, declared: list[tuple]) -> Hashable:
    leaves = keras.tree.flatten_with_path(inputs)
    if len(declared) != len(leaves):
        declared = [()] * len(leaves)
    return tuple(
        (path, str(array.dtype), _shape_of_example(array.shape, known))
        for (path, array), known in zip(leaves, declared, strict=True)
    )


def _shape_of_example(shape: tuple, declared: tuple) -> tuple:
    if len(shape) != len(declared):
        return tuple(shape[1:])
    return tuple(
        None if known is None else size
        for size, known in zip(shape[1:], declared[1:], strict=True)
    )
