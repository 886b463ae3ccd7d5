"""Batches of one size, for programs with static shapes."""

from typing import Any

import keras
import tensorflow as tf

from keras_bdl._arguments import check_count


def padded(batches: Any, batch_size: int) -> Any:
    """Returns batches of one size, whose last batch is padded with weight 0.

    Use the result as `validation_data`, or in `evaluate`, on a TPU, where all
    batches must have one size. Metrics in `compile(weighted_metrics=...)` leave
    out the padding, while metrics in `metrics` count it. The loss of Keras
    divides by all examples of a batch, padding included.
    `keras_bdl.predict` needs no padded data: the function pads them itself.

    Args:
        batches: A `tf.data.Dataset` of batches `(x, y)`, of which only the last
            may be smaller than `batch_size`.
        batch_size: Number of examples in a batch.

    Returns:
        A `tf.data.Dataset` of batches `(x, y, weight)` with static shapes. The
        padding repeats the first example of its batch.

    Example:

    ```python
    data = keras_bdl.datasets.EpochCounter().batches((x, y), 24, seed=0)
    model.evaluate(keras_bdl.datasets.padded(data, 24), verbose=0)
    ```
    """
    check_count("batch_size", batch_size)

    def whole(x, y):
        size = tf.shape(keras.tree.flatten(x)[0])[0]
        positions = tf.range(batch_size)
        is_own = positions < size
        rows = tf.where(is_own, positions, 0)

        def extended(part):
            taken = tf.gather(part, rows)
            return tf.ensure_shape(taken, (batch_size, *part.shape[1:]))

        x, y = keras.tree.map_structure(extended, (x, y))
        return x, y, tf.cast(is_own, "float32")

    return batches.map(whole)
