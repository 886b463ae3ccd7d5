"""Averages of the results of several batches, for one step of an optimizer."""

from collections.abc import Callable
from typing import Any

import keras
from keras import ops


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

    def add(self, found: dict[int, tuple], then: Callable[[dict], Any]) -> None:
        """Adds the tensors of a batch, and acts after the last batch.

        Args:
            found: A tuple of tensors for the index of each variable.
            then: Function of the averages, called after every `steps` batches.
        """
        sums = {i: self._sums[i][: len(found[i])] for i in found}
        batch = ops.add(self.batches, 1)

        def last():
            then(
                {
                    i: tuple(
                        (ops.cast(t, v.dtype) + v) / self._steps
                        for t, v in zip(found[i], sums[i], strict=True)
                    )
                    for i in found
                }
            )
            for v in keras.tree.flatten(sums):
                v.assign(ops.zeros(v.shape, v.dtype))

        def not_last():
            for i in found:
                for t, v in zip(found[i], sums[i], strict=True):
                    v.assign_add(ops.cast(t, v.dtype))

        ops.cond(ops.equal(ops.mod(batch, self._steps), 0), last, not_last)
        self.batches.assign(batch)
