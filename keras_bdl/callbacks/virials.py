"""Sums from which the configurational temperature is computed."""

import keras
from keras import ops


class Virials:
    """For each variable, the sum over the steps of the mean of `w dU/dw`.

    At temperature T the mean of `w dU/dw` is T, for each weight, wherever the
    density vanishes at infinity. Gradients of minibatches will do, since the
    weights were there before the minibatch was drawn.

    Args:
        num_variables: How many variables the optimizer moves.
    """

    def __init__(self, num_variables: int):
        self.sums = [
            keras.Variable(0.0, dtype="float32", trainable=False)
            for _ in range(num_variables)
        ]

    def add(self, optimizer, index: int, variable, gradient):
        """Adds one step of one variable, with its gradient of U."""
        value = ops.cast(variable, "float32")
        optimizer.assign_add(self.sums[index], ops.mean(value * gradient))

    def assign(self, sums):
        """Goes on from these sums."""
        for variable, value in zip(self.sums, sums, strict=True):
            variable.assign(value)
