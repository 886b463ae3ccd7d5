"""Calls of a model that leave the model unchanged."""

import contextlib
import functools
import threading
from collections.abc import Iterator
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from keras import ops

from keras_bdl import _keras
from keras_bdl._replaced_in_thread import replaced
from keras_bdl.distribute._replicas import variable_copies
from keras_bdl.distribute._workers import replica_arrays

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
    """Replaces a cell as `self` of its methods, and has its own masks."""

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


# More than the random calls of one layer in one batch.
_USES = 4096


def values_of(model: keras.Model) -> list:
    """Returns the current values of `model.variables` as tensors.

    In training, each replica keeps its own BatchNorm statistics. The result
    has the statistics of the first replica, on all workers.

    Args:
        model: A built Keras model.
    """
    values = [tf.identity(variable_copies(v)[0]) for v in model.variables]
    strategy = model.distribute_strategy
    own = [
        i
        for i, v in enumerate(model.variables)
        if not v.trainable and tf.as_dtype(v.dtype).is_floating
    ]
    if strategy.num_replicas_in_sync > 1 and own:
        local = [[values[i].numpy() for i in own]]
        local *= len(strategy.extended.worker_devices)
        first = replica_arrays(strategy, local)[0]
        for i, value in zip(own, first, strict=True):
            values[i] = _as_value(model.variables[i], value)
    return values


def with_values(model: keras.Model, values: list, assignments: list) -> list:
    """Returns `values` with new values for some variables.

    Args:
        model: The model that owns the variables.
        values: The tensors that `values_of` returned.
        assignments: Pairs of a variable and a value. If several pairs have
            the same variable, the last pair applies.
    """
    values = list(values)
    if not assignments:
        return values
    position = {id(v): i for i, v in enumerate(model.variables)}
    for variable, value in assignments:
        values[position[id(variable)]] = _as_value(variable, value)
    return values


def seed_states(model: keras.Model) -> list[int]:
    """Returns the positions of the seed generators in `model.variables`.

    Args:
        model: A built Keras model.
    """
    return [
        i
        for i, v in enumerate(model.variables)
        if v.name == "seed_generator_state" and tuple(v.shape) == (2,)
    ]


def moved_on(seed: Any, sample: int, batch: Any) -> Any:
    """Returns a different seed for each posterior sample and batch.

    Args:
        seed: The value of a seed generator.
        sample: Index of the sample.
        batch: Index of the batch, an integer or a tensor.
    """
    if isinstance(batch, int):
        step = np.array([sample, batch * _USES]).astype(
            seed.dtype.as_numpy_dtype
        )
    else:
        step = tf.cast(tf.stack([sample, batch * _USES]), seed.dtype)
    return seed + step


def _as_value(variable, value):
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

    Args:
        model: A built Keras model.
        inputs: A batch of nested tensors.
        scope: A `keras.StatelessScope` with a value for each variable.
        training: Argument of the model's call.
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

    def __init__(self, function):
        # A model in mixed precision opens its own autocast scope.
        super().__init__(name="stateless_call", dtype="float32", autocast=False)
        self._function = function
        self.built = True

    def call(self, inputs):
        return self._function(inputs)
