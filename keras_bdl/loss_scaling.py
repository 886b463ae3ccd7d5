"""The optimizer that moves the weights."""

import keras


def inner_optimizer(model):
    """Returns a model's optimizer, out of its loss scaling, or `None`."""
    return without_loss_scaling(getattr(model, "optimizer", None))


def without_loss_scaling(optimizer):
    """Returns an optimizer out of its loss scaling, or `None` for `None`."""
    while isinstance(optimizer, keras.optimizers.LossScaleOptimizer):
        optimizer = optimizer.inner_optimizer
    return optimizer
