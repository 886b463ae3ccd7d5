"""The matrices among the weights of a model."""

import dataclasses

import keras


@dataclasses.dataclass
class Matrix:
    """The weights of a layer that multiplies a matrix to its inputs.

    Attributes:
        kernel: The variable.
        bias: The variable that is a further row, the last, or `None`.
        shape: `(in, out)`, where `in` counts that row.
    """

    kernel: keras.Variable
    bias: keras.Variable | None
    shape: tuple

    @property
    def variables(self):
        """The kernel and, if it is a row of the matrix, the bias."""
        return [v for v in (self.kernel, self.bias) if v is not None]
