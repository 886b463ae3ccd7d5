"""Gaussian posterior whose covariance has Kronecker factors."""

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from keras_bdl._aliases import ArrayLike
from keras_bdl._arguments import as_list
from keras_bdl.posteriors._covariance_blocks import CovarianceBlocks
from keras_bdl.posteriors._diagonal_gaussian import Gaussian
from keras_bdl.posteriors._matrix_covariance import MatrixCovariance


class MatrixNormal(Gaussian):
    """Gaussians over the weight matrices of layers, by Kronecker factors.

    `NoisyKFAC` returns this posterior. The matrix of a layer is the kernel
    `(in, out)` with the bias as its last row. A sample of the matrix is

        W = M + sqrt(scale) * Q_A [E * sqrt(variance)] Q_S^T,
        E ~ N(0, I)                                                       (1)

    with the arrays of a `MatrixCovariance`. Layers are independent, and so
    are the entries of all other variables.

    Args:
        mean: One array for each trainable variable.
        matrices: A list of `MatrixCovariance`. Each variable belongs to at
            most one matrix.
        variance: One entry for each variable: the array of the variances, or
            `None` for a variable that is in a matrix or does not vary.
            Defaults to `None`: only the matrices vary.

    Reference:
        - Louizos and Welling, [Structured and Efficient Variational Deep
          Learning with Matrix Gaussian Posteriors](
          https://arxiv.org/abs/1603.04733)
        - Zhang et al., [Noisy Natural Gradient as Variational Inference](
          https://arxiv.org/abs/1712.02390), section 3.3; the paper adds
          damping to each factor of the covariance, and this library adds the
          prior precision to the product of the factors
    """

    def __init__(
        self,
        mean: Sequence[ArrayLike],
        matrices: Sequence[MatrixCovariance],
        *,
        variance: Sequence[ArrayLike | None] | None = None,
        **kwargs: Any,
    ):
        super().__init__(mean, variance, **kwargs)
        self._matrices = as_list("matrices", matrices, "`MatrixCovariance`")
        self._of_variable: dict[int, MatrixCovariance] = {}
        for i, matrix in enumerate(self._matrices):
            self._check_fit(i, matrix)
            for index in matrix.variables:
                self._check_alone(i, index)
                self._of_variable[index] = matrix

    @property
    def matrices(self) -> list[MatrixCovariance]:
        """The `MatrixCovariance` of each layer."""
        return list(self._matrices)

    def covariance_blocks(self) -> CovarianceBlocks | None:
        """Returns the variances and the matrices as blocks."""
        return CovarianceBlocks.of(
            self._variance, self._matrices, scale=self._scale
        )

    def get_state(self) -> dict[str, Any]:
        """Returns all arguments."""
        fields = [f.name for f in dataclasses.fields(MatrixCovariance)]
        return {
            **super().get_state(),
            "matrices": [
                {name: getattr(matrix, name) for name in fields}
                for matrix in self._matrices
            ],
        }

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> "MatrixNormal":
        """Returns the posterior that `get_state` described."""
        return cls(
            state["mean"],
            [MatrixCovariance(**fields) for fields in state["matrices"]],
            variance=state["variance"],
            scale=state["scale"],
            names=state["structure"]["names"],
            trained_under_draws=state["trained_under_draws"],
        )

    def _facts(self):
        return {**super()._facts(), "num_matrices": len(self._matrices)}

    def _spreads(self):
        return super()._spreads() or any(
            np.any(matrix.variance) for matrix in self._matrices
        )

    def _noises(self, rng):
        drawn: dict[int, Any] = {}
        for i, noise in enumerate(super()._noises(rng)):
            matrix = self._of_variable.get(i)
            if matrix is None:
                yield noise
                continue
            if id(matrix) not in drawn:
                dtype = self._mean[matrix.kernel].dtype
                drawn[id(matrix)] = matrix.draw(rng, dtype)
            rows = drawn[id(matrix)]
            if matrix.bias is not None:
                rows = rows[-1] if i == matrix.bias else rows[:-1]
            noise[...] = rows.reshape(noise.shape)
            yield noise

    def _check_fit(self, position, matrix):
        """Raises an error if a matrix does not fit its variables."""
        if not isinstance(matrix, MatrixCovariance):
            raise ValueError(
                "`matrices` must hold `keras_bdl.extend.MatrixCovariance`. "
                f"Received: matrices[{position}] of type "
                f"{type(matrix).__name__}"
            )
        for index in matrix.variables:
            if index not in range(len(self._mean)):
                raise ValueError(
                    "`matrices` must have indices of `mean`, which has "
                    f"{len(self._mean)} entries. Received: matrices[{position}]"
                    f" with the variables {matrix.variables}"
                )
        rows, outputs = matrix.variance.shape
        shape = self._mean[matrix.kernel].shape
        bias = None if matrix.bias is None else self._mean[matrix.bias].shape
        if bias is not None:
            rows -= 1
        if not _splits(shape, rows, outputs) or (
            bias is not None and math.prod(bias) != outputs
        ):
            raise ValueError(
                "`matrices` must fit `mean`. The kernel has the axes of `in`, "
                "then those of `out`, and a bias has those of `out`. "
                f"Received: matrices[{position}] with {rows} rows and "
                f"{outputs} columns{', and the row of the bias,' * bool(bias)} "
                f"for a kernel of shape {shape}"
                f"{'' if bias is None else f' and a bias of shape {bias}'}"
            )

    def _check_alone(self, position, index):
        if index in self._of_variable:
            raise ValueError(
                "`matrices` must not share a variable. Received: "
                f"matrices[{position}] with variable {index}, which belongs "
                "to an earlier matrix"
            )
        if self._variance is not None and self._variance[index] is not None:
            raise ValueError(
                "`variance` must be `None` for a variable in a matrix. "
                f"Received: variance[{index}] and matrices[{position}], both "
                f"for variable {index}"
            )


def _splits(shape, rows, outputs):
    """Returns whether the axes split into rows and then outputs."""
    return any(
        (math.prod(shape[:axis]), math.prod(shape[axis:])) == (rows, outputs)
        for axis in range(len(shape) + 1)
    )
