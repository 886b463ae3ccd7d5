"""The optimizer of a model, out of its loss scaling, and the scale."""

import keras
import tensorflow as tf


def inner_optimizer(model):
    """Returns a model's optimizer, out of its loss scaling, or `None`."""
    return without_loss_scaling(getattr(model, "optimizer", None))


def without_loss_scaling(optimizer):
    """Returns an optimizer out of its loss scaling, or `None` for `None`."""
    while isinstance(optimizer, keras.optimizers.LossScaleOptimizer):
        optimizer = optimizer.inner_optimizer
    return optimizer


def loss_scale(optimizer):
    """Returns what the optimizer divides gradients by, or `None`.

    Args:
        optimizer: The optimizer of a model, with its loss scaling.
    """
    one = tf.ones(())
    scaled = optimizer.scale_loss(one)
    return None if scaled is one else tf.convert_to_tensor(scaled)
