"""The optimizer that moves the weights."""

import keras


def inner_optimizer(model):
    """Returns a model's optimizer, out of its loss scaling, or `None`."""
    optimizer = getattr(model, "optimizer", None)
    while isinstance(optimizer, keras.optimizers.LossScaleOptimizer):
        optimizer = optimizer.inner_optimizer
    return optimizer
