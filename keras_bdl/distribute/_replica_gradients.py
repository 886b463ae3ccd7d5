"""Gradients for optimizers that clip or check gradients on each replica."""

import keras
import tensorflow as tf

from keras_bdl import _keras
from keras_bdl._inner_optimizer import loss_scale
from keras_bdl._inner_optimizer import without_loss_scaling
from keras_bdl.distribute._replicas import weighted

_CLIPPED = ("clipnorm", "clipvalue", "global_clipnorm")


def looks_at_gradients(optimizer) -> bool:
    """Returns whether an optimizer clips or checks gradients on replicas.

    Args:
        optimizer: The optimizer of a model, including a `LossScaleOptimizer`.
    """
    replicas = tf.distribute.get_strategy().num_replicas_in_sync
    return replicas > 1 and (_clips(optimizer) or _skips(optimizer))


def for_all_replicas(optimizer, gradients, weight=None):
    """Returns gradients, clipped and checked as on a single device.

    Keras clips the gradients of each replica, and checks only one replica for
    an overflow. This function clips the sum over the replicas. Each replica
    gets an equal share of the clipped sum, which Keras does not clip again.
    With loss scaling, if a gradient of one replica is not finite, the gradients
    of all replicas become NaN.

    Args:
        optimizer: The optimizer of a model, including a `LossScaleOptimizer`.
        gradients: Gradients of this replica: a list of tensors, slices and
            `None`.
        weight: Factor of the gradients, from `replica_weight`. Defaults to
            `None`, which stands for 1.
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
        scale = loss_scale(optimizer)
        scale = tf.ones(()) if scale is None else scale
        clipped = _keras.clip_gradients(
            without_loss_scaling(optimizer),
            [t / tf.cast(scale, t.dtype) for t in totals],
        )
        scale /= context.num_replicas_in_sync
        present = [t * tf.cast(scale, t.dtype) for t in clipped]
    if _skips(optimizer):
        present = [g * tf.cast(flag, g.dtype) for g in present]
    present = iter(present)
    return [None if g is None else next(present) for g in gradients]


def _clips(optimizer):
    inner = without_loss_scaling(optimizer)
    return any(getattr(inner, name, None) for name in _CLIPPED)


def _skips(optimizer):
    return isinstance(optimizer, keras.optimizers.LossScaleOptimizer)


def _flag(gradients):
    """Returns 1.0 if any gradient is not finite, else 0.0."""
    values = [g.values if _are_slices(g) else g for g in gradients]
    finite = [tf.reduce_all(tf.math.is_finite(v)) for v in values]
    return tf.cast(~tf.reduce_all(tf.stack(finite)), "float32")


def _are_slices(gradient):
    return isinstance(gradient, tf.IndexedSlices)
