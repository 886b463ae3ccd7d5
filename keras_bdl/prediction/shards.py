"""Prediction by all replicas of a strategy."""

import contextlib

import keras
import numpy as np
import tensorflow as tf

from keras_bdl.distribute.workers import replica_arrays
from keras_bdl.posteriors import restored
from keras_bdl.saving.variable_copies import variable_copies


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

    Args:
        strategy: The strategy.
        function: Of nested tensors, which returns nested tensors.
    """

    @tf.function(autograph=False, reduce_retracing=True)
    def run(shards, *args):
        results = strategy.run(function, (shards, *args))
        return keras.tree.map_structure(
            lambda parts: strategy.gather(parts, axis=0), results
        )

    return run


@contextlib.contextmanager
def same_on_all_replicas(model):
    """Gives all replicas the BatchNorm statistics of the first, for a block.

    In training each gathers its own; with these, a draw would be another
    function on every replica.

    Args:
        model: A built Keras model.
    """
    strategy = model.distribute_strategy
    variables = [
        v
        for v in model.non_trainable_variables
        if tf.as_dtype(v.dtype).is_floating
    ]
    if strategy.num_replicas_in_sync == 1 or not variables:
        yield
        return
    copies = [variable_copies(v) for v in variables]
    local = [[c[0].numpy() for c in copies]]
    local *= len(strategy.extended.worker_devices)
    values = replica_arrays(strategy, local)[0]
    with restored(variables):
        for of_variable, value in zip(copies, values, strict=True):
            for copy in of_variable:
                copy.assign(value)
        yield
