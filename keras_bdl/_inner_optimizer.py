"""Loss scaling: the inner optimizer and the current scale."""

import keras
import tensorflow as tf


def inner_optimizer(model: keras.Model) -> keras.optimizers.Optimizer | None:
    """Returns a model's optimizer without loss scaling, or `None`.

    Args:
        model: A Keras model.
    """
    return without_loss_scaling(getattr(model, "optimizer", None))


def without_loss_scaling(
    optimizer: keras.optimizers.Optimizer | None,
) -> keras.optimizers.Optimizer | None:
    """Returns an optimizer without the `LossScaleOptimizer` around it.

    Args:
        optimizer: An optimizer, a `LossScaleOptimizer` with an optimizer
            inside, or `None`, for which the function returns `None`.
    """
    while isinstance(optimizer, keras.optimizers.LossScaleOptimizer):
        optimizer = optimizer.inner_optimizer
    return optimizer


def loss_scale(optimizer: keras.optimizers.Optimizer) -> tf.Tensor | None:
    """Returns the number by which the optimizer divides gradients, or `None`.

    Args:
        optimizer: The optimizer of a model, with its loss scaling.
    """
    one = tf.ones(())
    scaled = optimizer.scale_loss(one)
    return None if scaled is one else tf.convert_to_tensor(scaled)


def batches_of_step(model: keras.Model) -> int:
    """Returns the number of batches that the optimizer takes for one step.

    Args:
        model: A compiled Keras model.
    """
    optimizer = inner_optimizer(model)
    # Natural gradients accumulate more than gradients, and do it themselves.
    for name in ("accumulated_batches", "gradient_accumulation_steps"):
        if steps := getattr(optimizer, name, None):
            return steps
    return 1
