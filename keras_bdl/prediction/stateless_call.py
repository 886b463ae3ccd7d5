"""Calls of a model that leave the model unchanged."""

import threading

import keras
import numpy as np
import tensorflow as tf
from keras import ops

from keras_bdl.distribute.variable_copies import variable_copies
from keras_bdl.distribute.workers import replica_arrays
from keras_bdl.prediction.recurrent_masks import own_masks

# More than any seed is used in one batch.
_USES = 4096


def values_of(model):
    """Returns the present values, tensors in the order of `model.variables`.

    Replicas gather BatchNorm statistics of their own in training. The result
    holds those of the first replica, also on the other workers.

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


def replaced(model, values, assignments):
    """Returns `values` with those of some variables replaced.

    Args:
        model: The model that the values are for.
        values: What `values_of` returned.
        assignments: Pairs of a variable and a value, of which the last counts.
    """
    values = list(values)
    if not assignments:  # as for most batches
        return values
    position = {id(v): i for i, v in enumerate(model.variables)}
    for variable, value in assignments:
        values[position[id(variable)]] = _as_value(variable, value)
    return values


def seed_states(model):
    """Returns the positions of the seed generators in `model.variables`."""
    return [
        i
        for i, v in enumerate(model.variables)
        if v.name == "seed_generator_state" and tuple(v.shape) == (2,)
    ]


def moved_on(seed, draw, batch):
    """Returns a seed of its own for each draw and batch.

    Args:
        seed: The value of a seed generator.
        draw: Number of the draw.
        batch: Number of the batch.
    """
    if isinstance(batch, int):
        step = np.array([draw, batch * _USES]).astype(seed.dtype.as_numpy_dtype)
    else:
        step = tf.cast(tf.stack([draw, batch * _USES]), seed.dtype)
    return seed + step


def _as_value(variable, value):
    return ops.convert_to_tensor(value, dtype=variable.dtype)


# Held while a model is traced: layers may keep tensors as attributes in the
# meantime.
TRACING = threading.RLock()


def stateless_call(model, inputs, scope, training):
    """Returns `model(inputs)`, computed with the values of a scope.

    Other threads may train the model or predict with it in the meantime.

    Args:
        model: A built Keras model.
        inputs: A batch, nested tensors.
        scope: A `keras.StatelessScope` with a value for each variable.
        training: The argument of the model.
    """
    known = len(model.variables)
    with scope, own_masks(model):
        outputs = _Call(lambda x: model(x, training=training))(inputs)
    if len(model.variables) != known:
        raise ValueError(
            "`model` must have all its variables before it predicts, and it "
            "made new ones when it was called. Call "
            f"`model(x, training={training})` once, and make the posterior "
            "after that. Received: new variables in model="
            f"{model.name!r}, {len(model.variables)} instead of {known}"
        )
    return outputs


class _Call(keras.layers.Layer):
    """Calls a function where Keras sees the call of a layer.

    Keras forgets the losses of the outermost layer that is called, and of all
    layers inside of it. Another thread may be about to add them up, so this
    layer, which has none, is the outermost one.
    """

    def __init__(self, function):
        # A model in mixed precision has a scope of its own.
        super().__init__(name="stateless_call", dtype="float32", autocast=False)
        self._function = function
        self.built = True

    def call(self, inputs):
        return self._function(inputs)
