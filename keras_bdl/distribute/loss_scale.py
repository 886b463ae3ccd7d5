"""What an optimizer wants losses to be multiplied by."""

import tensorflow as tf


def loss_scale(optimizer):
    """Returns what the optimizer divides gradients by, or `None`.

    Args:
        optimizer: The optimizer of a model, with its loss scaling.
    """
    one = tf.ones(())
    scaled = optimizer.scale_loss(one)
    return None if scaled is one else tf.convert_to_tensor(scaled)
