"""Data, sums and gradients that replicas exchange in a step.

Each replica also has a copy of each variable, to read and to restore.
"""

import contextlib
import itertools
from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Iterator
from typing import Any

import keras
import tensorflow as tf

from keras_bdl import _keras
from keras_bdl._backend import first_tensor
from keras_bdl._backend import num_replicas

# Only these dtypes can be gathered on every device.
_GATHERED = ("float16", "float32", "float64", "bfloat16", "int32", "int64")

_CLIPPED = ("clipnorm", "clipvalue", "global_clipnorm")


def replica_weight(data: Any) -> Any:
    """Returns the weight of a replica in the mean over all examples.

    Keras averages over the examples of each replica, and then over the
    replicas. This is the mean over all examples only if each replica has the
    weight

        R n_r / sum_r n_r                                                 (1)

    with n_r examples on replica r of R replicas. In the last batch of an epoch,
    replicas may have fewer examples than others, or none. The result is `None`
    if the weight is 1.
    """
    replicas = num_replicas()
    context = tf.distribute.get_replica_context()
    first = first_tensor(data)
    if replicas == 1 or context is None or _size(first) is not None:
        return None
    examples = tf.cast(tf.shape(first)[0], "float32")
    total = context.all_reduce(tf.distribute.ReduceOp.SUM, examples)
    return replicas * examples / tf.maximum(total, 1.0)  # (1)


def mean_of_examples(values: Any) -> Any:
    """Returns the mean of one number per example, over all replicas."""
    sums = tf.stack(
        [tf.reduce_sum(values), tf.cast(tf.shape(values)[0], values.dtype)]
    )
    context = tf.distribute.get_replica_context()
    if num_replicas() > 1 and context is not None:
        sums = context.all_reduce(tf.distribute.ReduceOp.SUM, sums)
    return tf.math.divide_no_nan(sums[0], sums[1])


def weighted(tensors: list, weight: Any) -> list:
    """Returns tensors, slices and `None` times the weight of a replica.

    The weight 0 turns NaN in a tensor into 0. A replica without examples has
    the weight 0, and BatchNorm without examples returns NaN.
    """
    return tensors if weight is None else [_times(t, weight) for t in tensors]


def _times(tensor: Any, weight: Any) -> Any:
    if tensor is None:
        return None
    weight = tf.cast(weight, tensor.dtype)
    if isinstance(tensor, tf.IndexedSlices):
        return tensor * weight
    return tf.math.multiply_no_nan(tensor, weight)


def on_cpus(strategy: tf.distribute.Strategy) -> bool:
    """Returns whether the replicas of a strategy are CPUs."""
    return strategy.num_replicas_in_sync > 1 and any(
        "device:CPU" in device for device in strategy.extended.worker_devices
    )


def looping_in_python(model: Any, function: Callable) -> Callable:
    """Returns a function of Keras for several steps, with a loop in Python.

    The loop that Keras traces passes a batch that may be missing from step to
    step. TensorFlow cannot do so on several CPUs.
    """
    steps: list[tuple[Any, Any]] = []  # a spec may hold dictionaries

    def step_on(spec: Any) -> Any:
        for known, made in steps:
            if known == spec:
                return made

        def step(data: Any) -> Any:
            return function([data])

        made = step
        if not model.run_eagerly:
            # Without the signature, each replica would see the size of its
            # part.
            made = tf.function(step, input_signature=[spec], autograph=False)
        steps.append((spec, made))
        return made

    def run(iterator: Any) -> Any:
        data = next(iterator)  # its `StopIteration` ends the epoch in Keras
        logs = step_on(iterator.element_spec)(data)
        for data in itertools.islice(iterator, model.steps_per_execution - 1):
            logs = step_on(iterator.element_spec)(data)
        return logs

    return run


def batch_of_group(data: Any, copies: int) -> Any:
    """Returns the part of the batch for this replica.

    With R replicas and c copies, the function cuts the whole batch into R / c
    parts, and gives each part to c replicas. With c = R, all replicas get the
    whole batch. `data` is the part that the strategy gave to this replica.
    """
    if copies == 1:
        return data
    context = tf.distribute.get_replica_context()
    parts = context.num_replicas_in_sync // copies
    part = context.replica_id_in_sync_group % parts

    def of_group(tensor: Any) -> Any:
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
def statistics_of_examples(model: keras.Model, data: Any) -> Iterator[None]:
    """Returns a context in which an empty batch changes no statistics.

    On a replica without examples, BatchNorm would average NaN into its moving
    statistics.
    """
    first = first_tensor(data)
    kept = []
    if num_replicas() > 1 and _size(first) is None:
        kept = [
            (variable, tf.identity(variable.value))
            for variable in model.non_trainable_variables
            if tf.as_dtype(variable.dtype).is_floating
        ]
    yield
    for variable, before in kept:
        some = tf.shape(first)[0] > 0
        variable.assign(tf.where(some, variable.value, before))


def _size(tensor: Any) -> int | None:
    """Returns the number of examples if it is the same on all replicas."""
    # A graph has one static shape for all replicas. In eager execution, each
    # replica has its own shape.
    return None if tf.executing_eagerly() else tensor.shape[0]


def looks_at_gradients(optimizer: keras.optimizers.Optimizer) -> bool:
    """Returns whether an optimizer clips or checks gradients on replicas."""
    return num_replicas() > 1 and (_clips(optimizer) or _skips(optimizer))


def for_all_replicas(
    optimizer: keras.optimizers.Optimizer, gradients: list, weight: Any = None
) -> list:
    """Returns gradients, clipped and checked as on a single device.

    Keras clips the gradients of each replica, and checks only one replica for
    an overflow. This function clips the sum over the replicas. Each replica
    gets an equal share of the clipped sum, which Keras does not clip again.
    With loss scaling, if a gradient of one replica is not finite, the gradients
    of all replicas become NaN. `weight` is that of `replica_weight`.
    """
    gradients = weighted(gradients, weight)
    context = tf.distribute.get_replica_context()
    if context is None or not looks_at_gradients(optimizer):
        return gradients
    present = [g for g in gradients if g is not None]
    if _skips(optimizer):
        flag = _flag(present)
        total = context.all_reduce(tf.distribute.ReduceOp.SUM, flag)
        flag = tf.where(total > 0, float("nan"), 1.0)
    if _clips(optimizer):
        totals = context.all_reduce(tf.distribute.ReduceOp.SUM, present)
        scale = _keras.loss_scale(optimizer)
        scale = tf.ones(()) if scale is None else scale
        clipped = _keras.clip_gradients(
            _keras.without_loss_scaling(optimizer),
            [t / tf.cast(scale, t.dtype) for t in totals],
        )
        scale /= context.num_replicas_in_sync
        present = [t * tf.cast(scale, t.dtype) for t in clipped]
    if _skips(optimizer):
        present = [g * tf.cast(flag, g.dtype) for g in present]
    left = iter(present)
    return [None if g is None else next(left) for g in gradients]


def _clips(optimizer: Any) -> bool:
    inner = _keras.without_loss_scaling(optimizer)
    return any(getattr(inner, name, None) for name in _CLIPPED)


def _skips(optimizer: Any) -> bool:
    return isinstance(optimizer, keras.optimizers.LossScaleOptimizer)


def _flag(gradients: list) -> Any:
    """Returns 1.0 if any gradient is not finite, else 0.0."""
    values = [
        g.values if isinstance(g, tf.IndexedSlices) else g for g in gradients
    ]
    finite = [tf.reduce_all(tf.math.is_finite(v)) for v in values]
    return tf.cast(~tf.reduce_all(tf.stack(finite)), "float32")


def variable_copies(variable: keras.Variable) -> tuple:
    """Returns the TensorFlow variables of a Keras variable, one a replica.

    The values differ for a BatchNorm statistic or a metric.
    """
    return getattr(variable.value, "values", (variable.value,))


@contextlib.contextmanager
def restored(
    variables: Iterable[keras.Variable],
) -> Iterator[Callable[[], None]]:
    """Restores variables at the end of a context, also after an error."""
    # On several replicas, the copies of a BatchNorm statistic differ.
    copies = [copy for v in variables for copy in variable_copies(v)]
    values = [copy.numpy() for copy in copies]

    def restore() -> None:
        for copy, value in zip(copies, values, strict=True):
            copy.assign(value)

    try:
        yield restore
    finally:
        restore()


def assign(assignments: Iterable[tuple[Any, Any]]) -> None:
    """Assigns values to variables, from pairs of a variable and a value."""
    for variable, value in assignments:
        variable.assign(value)
