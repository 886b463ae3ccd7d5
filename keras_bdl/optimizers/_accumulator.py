"""Averages of the results of several batches, for one step of an optimizer."""

from collections.abc import Callable
from typing import Any

import keras
from keras import ops

from keras_bdl import _keras


class Accumulator:
    """Sums of the statistics of several batches, in variables of an optimizer.

    `shapes` holds, for each variable of the model, the shapes of its tensors.
    """

    def __init__(
        self, optimizer: Any, shapes: list[list], dtype: str, steps: int
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
        """Adds the tensors of a batch; after the last batch, makes a step.

        `found` is a tuple of tensors for each variable. `step` gets the
        averages over the batches in the same form, and the variables.
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

        def last() -> None:
            means = [
                tuple((t + v) / self._steps for t, v in of_variable)
                for of_variable in pairs
            ]
            step(means, variables)
            for v in keras.tree.flatten(sums):
                v.assign(ops.zeros(v.shape, v.dtype))

        def not_last() -> None:
            for of_variable in pairs:
                for t, v in of_variable:
                    v.assign_add(t)

        ops.cond(ops.equal(ops.mod(batch, self._steps), 0), last, not_last)
        self.batches.assign(batch)
