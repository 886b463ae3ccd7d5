"""Pipelines whose order is a function of seed and epoch."""

from typing import Any

import keras
import tensorflow as tf


def batches_of_arrays(
    epochs: Any,
    arrays: Any,
    batch_size: int,
    *,
    seed: int,
    drop_remainder: bool,
) -> Any:
    """Returns batches of arrays, with a new permutation in each epoch.

    Args:
        epochs: Dataset of one element, the number of the epoch.
        arrays: Structure of arrays with equally many rows.
        batch_size: Number of rows in a batch.
        seed: Seed of the permutations.
        drop_remainder: Whether to leave out a last, smaller batch.
    """
    with tf.device("CPU:0"):
        arrays = keras.tree.map_structure(tf.convert_to_tensor, arrays)
    sizes = {
        tuple(a.shape)[0] if a.shape.rank else None
        for a in keras.tree.flatten(arrays)
    }
    if len(sizes) != 1 or None in sizes:
        raise ValueError(
            "`data` must be arrays with one row for each example, all with "
            "equally many rows, or a `tf.data.Dataset`. Received: arrays of "
            f"shapes {[tuple(a.shape) for a in keras.tree.flatten(arrays)]}"
        )
    size: Any = sizes.pop()

    def permuted(epoch):
        rows = tf.random.experimental.stateless_shuffle(
            tf.range(size, dtype=tf.int64),
            epoch_key(seed, epoch),
            alg="philox",  # the same order on every kind of machine
        )
        return tf.data.Dataset.from_tensor_slices(rows)

    def gather(rows):
        return keras.tree.map_structure(lambda a: tf.gather(a, rows), arrays)

    rows = with_size(epochs.flat_map(permuted), size)
    batches = rows.batch(batch_size, drop_remainder=drop_remainder)
    return in_fixed_order(batches.map(gather, tf.data.AUTOTUNE))


def shuffled_batches(
    epochs: Any,
    examples: Any,
    batch_size: int,
    buffer_size: int | None,
    *,
    seed: int,
    drop_remainder: bool,
) -> Any:
    """Returns batches of a dataset, shuffled anew in each epoch.

    Args:
        epochs: Dataset of one element, the number of the epoch.
        examples: Dataset of single examples with known cardinality.
        batch_size: Number of examples in a batch.
        buffer_size: Size of the buffer, or `None` for all examples.
        seed: Seed of the order.
        drop_remainder: Whether to leave out a last, smaller batch.
    """
    size = int(examples.cardinality())
    if size < 1:
        raise ValueError(
            "`data` must have a known, finite number of examples. Apply "
            "`tf.data.experimental.assert_cardinality` to it. Received: a "
            f"dataset of cardinality {size}"
        )

    def shuffled(epoch):
        return shuffled_examples(
            examples, buffer_size or size, epoch_key(seed, epoch)
        )

    rows = with_size(epochs.flat_map(shuffled), size)
    return in_fixed_order(rows.batch(batch_size, drop_remainder=drop_remainder))


def shuffled_examples(examples: Any, buffer_size: int, key: Any) -> Any:
    """Returns a dataset in an order that depends on a key alone.

    Call this function inside of `flat_map`.

    Args:
        examples: Dataset.
        buffer_size: Size of the buffer.
        key: A key of `tf.random.stateless_uniform`.
    """
    # A shuffle mixes the global seed into its own seed. This call sets
    # the global seed only for the graph that is being traced.
    tf.random.set_seed(1)
    order = tf.random.stateless_uniform((), key, None, None, tf.int64)
    return examples.shuffle(
        buffer_size, seed=order, reshuffle_each_iteration=False
    )


def epoch_key(seed: int, *data: Any) -> Any:
    """Returns a key for stateless random numbers.

    Args:
        seed: The seed of the data.
        *data: The epoch, or epoch and position.
    """
    key = tf.constant((seed, 0), tf.int32)
    for number in data:
        key = tf.random.fold_in(key, number)
    return key


def with_size(dataset: Any, size: int) -> Any:
    """Returns a dataset with known cardinality."""
    return dataset.apply(tf.data.experimental.assert_cardinality(size))


def in_fixed_order(batches: Any) -> Any:
    """Returns batches in the same order on every worker."""
    options = tf.data.Options()
    options.deterministic = True
    # With sharding by files, the order would differ between workers.
    options.experimental_distribute.auto_shard_policy = (
        tf.data.experimental.AutoShardPolicy.DATA
    )
    return batches.with_options(options).prefetch(tf.data.AUTOTUNE)
