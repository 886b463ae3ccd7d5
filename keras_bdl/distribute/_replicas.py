"""Data and statistics that replicas exchange within a training step."""

import contextlib

import keras
import tensorflow as tf

# Only these dtypes can be gathered on every device.
_GATHERED = ("float16", "float32", "float64", "bfloat16", "int32", "int64")


def replica_weight(data):
    """Returns the weight of a replica in the mean over all examples.

    Keras averages over the examples of each replica, and then over the
    replicas. This is the mean over all examples only if each replica has the
    weight

        R n_r / sum_r n_r                                                 (1)

    with n_r examples on replica r of R replicas. In the last batch of an epoch,
    replicas may have fewer examples than others, or none.

    Args:
        data: The batch of this replica, nested tensors.

    Returns:
        A float32 tensor, or `None` if the weight is 1.
    """
    replicas = tf.distribute.get_strategy().num_replicas_in_sync
    context = tf.distribute.get_replica_context()
    first = first_tensor(data)
    if replicas == 1 or context is None or _size(first) is not None:
        return None
    examples = tf.cast(tf.shape(first)[0], "float32")
    total = context.all_reduce(tf.distribute.ReduceOp.SUM, examples)
    return replicas * examples / tf.maximum(total, 1.0)  # (1)


def mean_of_examples(values):
    """Returns the mean over the examples of all replicas.

    Args:
        values: A tensor with one number per example of this replica.
    """
    sums = tf.stack(
        [tf.reduce_sum(values), tf.cast(tf.shape(values)[0], values.dtype)]
    )
    replicas = tf.distribute.get_strategy().num_replicas_in_sync
    context = tf.distribute.get_replica_context()
    if replicas > 1 and context is not None:
        sums = context.all_reduce(tf.distribute.ReduceOp.SUM, sums)
    return tf.math.divide_no_nan(sums[0], sums[1])


def weighted(tensors, weight):
    """Returns tensors times the weight of a replica.

    The weight 0 turns NaN in a tensor into 0. A replica without examples has
    the weight 0, and BatchNorm without examples returns NaN.

    Args:
        tensors: A list of tensors, `tf.IndexedSlices` and `None`.
        weight: The result of `replica_weight`. `None` stands for 1.
    """
    return tensors if weight is None else [_times(t, weight) for t in tensors]


def _times(tensor, weight):
    if tensor is None:
        return None
    weight = tf.cast(weight, tensor.dtype)
    if isinstance(tensor, tf.IndexedSlices):
        return tensor * weight
    return tf.math.multiply_no_nan(tensor, weight)


def batch_of_group(data, copies: int):
    """Returns the part of the batch for this replica.

    With R replicas and c copies, the function cuts the whole batch into R / c
    parts, and gives each part to c replicas. With c = R, all replicas get the
    whole batch.

    Args:
        data: Nested tensors, the part that the strategy gave to this replica.
        copies: c, the number of replicas with the same part, a divisor of R.
    """
    if copies == 1:
        return data
    context = tf.distribute.get_replica_context()
    parts = context.num_replicas_in_sync // copies
    part = context.replica_id_in_sync_group % parts

    def of_group(tensor):
        if tensor is None:
            return None
        dtype = tensor.dtype
        if dtype.name not in _GATHERED:
            tensor = tf.cast(tensor, "int32")
        tensor = tf.identity(tensor)  # on the device of this replica
        whole = tf.cast(context.all_gather(tensor, axis=0), dtype)
        size, shape = _size(tensor), tensor.shape[1:]
        if size is None:
            total = tf.shape(whole)[0]
            start, end = part * total // parts, (part + 1) * total // parts
        else:
            size *= copies
            start, end = part * size, (part + 1) * size
        # A gathered tensor has lost its static shape.
        return tf.ensure_shape(whole[start:end], [size, *shape])

    return keras.tree.map_structure(of_group, data)


@contextlib.contextmanager
def statistics_of_examples(model, data):
    """Returns a context in which an empty batch changes no statistics.

    On a replica without examples, BatchNorm would average NaN into its moving
    statistics.

    Args:
        model: The model that the block trains.
        data: The batch of this replica.
    """
    replicas = tf.distribute.get_strategy().num_replicas_in_sync
    first = first_tensor(data)
    kept = []
    if replicas > 1 and _size(first) is None:
        kept = [
            (variable, tf.identity(variable.value))
            for variable in model.non_trainable_variables
            if tf.as_dtype(variable.dtype).is_floating
        ]
    yield
    for variable, before in kept:
        some = tf.shape(first)[0] > 0
        variable.assign(tf.where(some, variable.value, before))


def _size(tensor):
    """Returns the number of examples if it is the same on all replicas."""
    # A graph has one static shape for all replicas. In eager execution, each
    # replica has its own shape.
    return None if tf.executing_eagerly() else tensor.shape[0]


def first_tensor(data):
    """Returns the first tensor of a batch, whose axis 0 counts the examples.

    Args:
        data: Nested tensors, some of which may be `None`.
    """
    return next(t for t in keras.tree.flatten(data) if t is not None)
