"""The weights of a layer that multiplies its inputs by a matrix."""

import dataclasses
from collections.abc import Callable
from typing import Any

import keras


@dataclasses.dataclass
class Matrix:
    """A kernel that multiplies vectors, and its bias.

    Attributes:
        kernel: The kernel.
        bias: The bias if it is the last row of the matrix, or `None`.
        kernel_shape: `(in, out)`, without the row of the bias.
        rows: Function that takes the inputs and the cotangents of a call, as
            `Rule.per_example` does. It returns the vectors before the matrix,
            `(examples, positions, in)`, and the cotangents of the products,
            `(examples, positions, out)`.
    """

    kernel: keras.Variable
    bias: keras.Variable | None
    kernel_shape: tuple[int, int]
    rows: Callable[[Any, Any], tuple[Any, Any]]

    @property
    def shape(self) -> tuple[int, int]:
        """`(in, out)`, where `in` includes the row of the bias."""
        ins, outs = self.kernel_shape
        return ins + (self.bias is not None), outs

    @property
    def variables(self) -> list:
        """The kernel, and the bias if the matrix has a row for the bias."""
        return [v for v in (self.kernel, self.bias) if v is not None]
