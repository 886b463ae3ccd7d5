"""The values of the weights during one step."""

import keras
import tensorflow as tf


class WeightScope(keras.StatelessScope):
    """Puts values in the place of variables and watches who reads them.

    No variable is changed: other assignments, such as those of BatchNorm
    statistics, seeds and metrics, go to the variables unless `pure`.

    Args:
        variables: Trainable Keras variables.
        values: A tensor for each.
        pure: Whether all assignments are forgotten at the end.
    """

    def __init__(self, variables, values, pure=False):
        super().__init__(
            zip(variables, values, strict=True),
            collect_losses=True,
            # What the first step makes, such as trackers of several losses.
            initialize_variables=True,
        )
        self._variables = {id(v): v for v in variables}
        self._values = {i: self.state_mapping[i] for i in self._variables}
        self._pure = pure
        self.on_read = None
        self.on_assign = None

    def value_of(self, variable):
        """Returns the value in the place of one of the variables."""
        return self._values[id(variable)]

    def get_current_value(self, variable):
        """Returns the value that Keras computes with."""
        if self.on_read is not None and id(variable) in self._variables:
            return self.on_read(variable)
        return super().get_current_value(variable)

    def add_update(self, update):
        """Assigns to a variable, or keeps what would be assigned."""
        variable, value = update
        if id(variable) in self._variables:
            raise ValueError(
                "A trainable variable must not be assigned while its "
                f"per-example gradients are taken. Received: {variable.path}"
            )
        if self.on_assign is not None:
            self.on_assign(variable)
        if self._pure:
            return super().add_update(update)
        # Outside, so that it reaches the variable.
        self.__exit__(None, None, None)
        try:
            variable.assign(value)
        finally:
            self.__enter__()


class PinnedWeights(keras.StatelessScope):
    """Puts other values in the place of some variables, inside of a scope.

    Args:
        values: Pairs of variables and tensors.
    """

    def __init__(self, values):
        super().__init__(values, initialize_variables=False)

    def get_current_value(self, variable):
        """Returns the value that Keras computes with."""
        value = super().get_current_value(variable)
        if value is None and self.original_scope is not None:
            value = self.original_scope.get_current_value(variable)
        return value

    def add_update(self, update):
        """Leaves an assignment to the scope outside, if there is one."""
        outer = self.original_scope
        if outer is None:
            return super().add_update(update)
        self.__exit__(None, None, None)
        try:
            outer.add_update(update)
        finally:
            self.__enter__()


def current_values(variables):
    """Returns the values of Keras variables as tensors.

    Args:
        variables: Keras variables.
    """
    return [tf.convert_to_tensor(v.value) for v in variables]
