"""Scopes that give the weights other values during one step."""

from collections.abc import Callable
from collections.abc import Iterable
from typing import Any

import keras
import tensorflow as tf


class WeightScope(keras.StatelessScope):
    """Replaces the values of variables, and calls `on_read` for each read.

    Keras uses `values` in the scope, and the variables do not change.
    Assignments to other variables, such as BatchNorm statistics, seeds and
    metrics, take effect unless `pure` drops them at the end of the scope.
    """

    def __init__(self, variables: list, values: list, *, pure: bool = False):
        super().__init__(
            zip(variables, values, strict=True),
            collect_losses=True,
            # The first step creates variables, such as trackers of losses.
            initialize_variables=True,
        )
        self._variables = {id(v): v for v in variables}
        self._values = {i: self.state_mapping[i] for i in self._variables}
        self._pure = pure
        self.on_read: Callable | None = None
        self.on_assign: Callable | None = None

    def value_of(self, variable: Any) -> Any:
        """Returns the value that replaces the value of a variable."""
        return self._values[id(variable)]

    def get_current_value(self, variable: Any) -> Any:
        """Returns the value that Keras uses for a variable."""
        if self.on_read is not None and id(variable) in self._variables:
            return self.on_read(variable)
        return super().get_current_value(variable)

    def add_update(self, update: tuple[Any, Any]) -> Any:
        """Assigns a variable, or records the assignment if `pure` is `True`."""
        variable, value = update
        if id(variable) in self._variables:
            raise ValueError(
                "A layer must not assign a trainable variable in a training "
                "step with per-example gradients. Make the variable "
                f"non-trainable. Received: {variable.path}"
            )
        if self.on_assign is not None:
            self.on_assign(variable)
        if self._pure:
            return super().add_update(update)
        # Leave the scope for the assignment, so that the variable changes.
        self.__exit__(None, None, None)
        try:
            variable.assign(value)
        finally:
            self.__enter__()


class PinnedWeights(keras.StatelessScope):
    """Replaces the values of some variables, also inside another scope."""

    def __init__(self, values: Iterable[tuple[Any, Any]]):
        super().__init__(values, initialize_variables=False)

    def get_current_value(self, variable: Any) -> Any:
        """Returns the value that Keras uses for a variable."""
        value = super().get_current_value(variable)
        if value is None and self.original_scope is not None:
            value = self.original_scope.get_current_value(variable)
        return value

    def add_update(self, update: tuple[Any, Any]) -> Any:
        """Passes an assignment to the outer scope if an outer scope exists."""
        outer = self.original_scope
        if outer is None:
            return super().add_update(update)
        self.__exit__(None, None, None)
        try:
            outer.add_update(update)
        finally:
            self.__enter__()


def current_values(variables: list) -> list:
    """Returns the values of Keras variables as tensors."""
    return [tf.convert_to_tensor(v.value) for v in variables]
