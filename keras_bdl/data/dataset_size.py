"""The one place where the number of training examples is kept."""

import keras
from keras import ops

from keras_bdl.arguments import check_number


class DatasetSize:
    """N: given by the user, or counted by `keras_bdl.Model.fit`.

    Whatever has a loss or a noise that depends on N owns one of these as its
    attribute `dataset_size`: an optimizer, an objective, a layer, a
    regularizer. `keras_bdl.Model.fit` finds them all and counts the data for
    those that were not given a number.

    The count lives in a variable, so that no trace bakes it in, and apart
    from the number given, which alone belongs into a config.

    Args:
        given: The user's `dataset_size`, or `None`: to be counted.
        owner: Name of the class that asks, for messages.
        maker: Name of a function that makes the owner, too, and takes
            `dataset_size`. Defaults to `None`.
    """

    def __init__(self, given: int | None, owner: str, maker: str | None = None):
        if given is not None:
            check_number("dataset_size", given, at_least=1)
        self.given = given
        self.owner = owner
        self._maker = maker
        self.counted = None
        self._variable = None

    def __repr__(self):
        return repr(self.given)

    def count(self, examples: int):
        """Tells the number of examples that the next training will see."""
        self.counted = int(examples)
        if self._variable is None:
            # Hidden in this plain object, the variable is no weight of the
            # layer that owns it.
            self._variable = keras.Variable(
                float(examples),
                dtype="float32",
                trainable=False,
                # Half precision ends at 65504.
                autocast=False,
                name="dataset_size",
            )
        self._variable.assign(float(examples))

    @property
    def advice(self) -> str:
        """The call that gives N, for error messages."""
        advice = f"Write `{self.owner}(..., dataset_size=<examples>)`"
        if self._maker is None:
            return advice
        return f"{advice} or `{self._maker}(..., dataset_size=<examples>)`"

    @property
    def known(self) -> bool:
        """Whether N was given or counted."""
        return self.given is not None or self.counted is not None

    def value(self):
        """Returns N as a float32 tensor; raises where nobody knows it."""
        if self.given is not None:
            return ops.convert_to_tensor(float(self.given), "float32")
        if not self.known:
            raise ValueError(
                f"`{self.owner}` needs the number of training examples, and "
                f"they were not counted. {self.advice}, or train with "
                "`keras_bdl.Model.fit`, which counts arrays and `tf.data`."
            )
        return self._variable.value
