"""Prediction by all replicas of a strategy."""

import keras
import numpy as np
import tensorflow as tf

from keras_bdl.distribute.keras_fixes import in_several_workers
from keras_bdl.prediction.stateless_call import TRACING


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
