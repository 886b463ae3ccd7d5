"""Averages of the results of several batches, for one step of an optimizer."""

from collections.abc import Callable
from typing import Any

import keras
from keras import ops

from keras_bdl import _keras


class Accumulator:
    """Sums of tensors over batches, in variables of an optimizer.

    Args:
        optimizer: The optimizer that owns the variables.
        shapes: For each variable of the model, the shapes of its tensors.
        dtype: The dtype of the sums.
        steps: Number of batches for one step.
    """

    def __init__(
        self,
        optimizer: keras.Optimizer,
        shapes: list[list],
        dtype: str,
        steps: int,
    ):
        self._optimizer = optimizer
        self._steps = steps
        self.batches = optimizer.add_variable(
            (),
            initializer="zeros",
            dtype="int64",
            aggregation="only_first_replica",
            name="batches",
        )
        self._sums = [
            [
                optimizer.add_variable(
                    shape, initializer="zeros", dtype=dtype, name="sum"
                )
                for shape in of_variable
            ]
            for of_variable in shapes
        ]

    def add(
        self,
        found: list[tuple],
        variables: list,
        step: Callable[[list, list], Any],
    ) -> None:
        """Adds the tensors of a batch, and makes a step after the last batch.

        Args:
            found: A tuple of tensors for each variable.
            variables: Variables of the model.
            step: Function of the averages, in the form of `found`, and of
                `variables`. It is called after every `steps` batches.
        """
        sums = [
            self._sums[_keras.variable_index(self._optimizer, v)][: len(new)]
            for v, new in zip(variables, found, strict=True)
        ]
        pairs = [
            [(ops.cast(t, v.dtype), v) for t, v in zip(*both, strict=True)]
            for both in zip(found, sums, strict=True)
        ]
        batch = ops.add(self.batches, 1)

        def last():
            means = [
                tuple((t + v) / self._steps for t, v in of_variable)
                for of_variable in pairs
            ]
            step(means, variables)
            for v in keras.tree.flatten(sums):
                v.assign(ops.zeros(v.shape, v.dtype))

        def not_last():
            for of_variable in pairs:
                for t, v in of_variable:
                    v.assign_add(t)

        ops.cond(ops.equal(ops.mod(batch, self._steps), 0), last, not_last)
        self.batches.assign(batch)
