"""A covariance made of independent blocks."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

# The first entry of each tuple of a layout.
VARIANCE, MATRIX = "variance", "matrix"


@dataclasses.dataclass(frozen=True, eq=False)
class CovarianceBlocks:
    """The covariance of a Gaussian over weights, as independent blocks.

    A block is the variance of each entry of one variable, or the
    `MatrixCovariance` of a weight matrix. Variables without a block do not
    vary.

    Attributes:
        layout: For each block, `("variance", index)` or `("matrix", kernel,
            bias)`, with indices of trainable variables and `None` for a matrix
            without a bias.
        arrays: For each block in turn, its arrays: the variances, or Q_A, Q_S
            and the variances of a matrix.
    """

    layout: tuple[tuple, ...]
    arrays: list[np.ndarray]

    @classmethod
    def of(
        cls,
        variances: Sequence[np.ndarray | None] | None,
        matrices: Sequence[Any] = (),
        *,
        scale: float,
    ) -> "CovarianceBlocks":
        """Returns the blocks of a Gaussian.

        Args:
            variances: The variances of each variable, or `None` for variables
                without a block. `None` in place of the list: no variances.
            matrices: The `MatrixCovariance` of each matrix. Defaults to `()`.
            scale: Factor of the whole covariance.
        """
        layout: list[tuple] = []
        arrays: list[np.ndarray] = []
        for index, variance in enumerate(variances or ()):
            if variance is not None:
                layout.append((VARIANCE, index))
                arrays.append(variance * variance.dtype.type(scale))
        for m in matrices:
            layout.append((MATRIX, m.kernel, m.bias))
            variance = m.variance * m.variance.dtype.type(scale)
            arrays += [m.inputs, m.outputs, variance]
        return cls(tuple(layout), arrays)
