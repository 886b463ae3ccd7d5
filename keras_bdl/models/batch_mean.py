"""Means over batches, as metrics add them up."""

import keras
from keras import ops


def add_batch_mean(metric, value, x):
    """Updates a metric by the mean of a value over a batch.

    The last batch may leave a replica without an example. The mean there is
    NaN, and does not count.

    Args:
        metric: A `keras.metrics.Mean`.
        value: The mean over the batch.
        x: The inputs, whose first axis is that of the examples.
    """
    first = next(i for i in keras.tree.flatten(x) if i is not None)
    size = ops.shape(first)[0]
    value = ops.where(ops.equal(size, 0), ops.zeros_like(value), value)
    metric.update_state(value, sample_weight=size)
