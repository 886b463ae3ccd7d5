"""Covariance and curvature of a weight matrix, by Kronecker factors."""

import dataclasses
import operator
from typing import Any

import numpy as np

from keras_bdl._arguments import as_list
from keras_bdl.posteriors._diagonal_gaussian import as_moment

# Largest error of a product that should be the identity. The error of
# eigenvectors in float32 is far smaller.
ORTHOGONALITY = 1e-3


@dataclasses.dataclass(frozen=True, eq=False)
class MatrixCovariance:
    """The covariance of a weight matrix, in the eigenbases of its factors.

    The matrix is a kernel `(in, out)`, optionally with a bias as its last
    row. A sample of the matrix is

        W = M + Q_A [E * sqrt(variance)] Q_S^T,    E ~ N(0, I)            (1)

    For W flattened row by row, the covariance is

        (Q_A (x) Q_S) diag(variance) (Q_A (x) Q_S)^T                      (2)

    Let A = Q_A diag(a) Q_A^T and S = Q_S diag(s) Q_S^T be Kronecker factors
    of the curvature per example. N examples and a prior of precision delta
    give `variance = 1 / (N a_j s_k + delta)`. Then (2) is the exact inverse
    of `N A (x) S + delta I`.

    Args:
        kernel: Index of the kernel among the variables. The first axes of the
            kernel make up `in`, and the other axes make up `out`.
        bias: Index of the variable in the last row of the matrix, or `None`.
        inputs: Q_A, orthogonal, of shape `(in, in)` with eigenvectors as
            columns. `in` includes the row of the bias.
        outputs: Q_S, orthogonal, of shape `(out, out)`.
        variance: Variance of each pair of eigenvectors, `(in, out)`, not
            negative.
    """

    kernel: int
    bias: int | None
    inputs: np.ndarray
    outputs: np.ndarray
    variance: np.ndarray

    def __post_init__(self):
        # A frozen dataclass allows no other assignment.
        assign = object.__setattr__
        assign(self, "kernel", operator.index(self.kernel))
        if self.bias is not None:
            assign(self, "bias", operator.index(self.bias))
        for name in ("inputs", "outputs", "variance"):
            assign(self, name, as_moment(name, getattr(self, name)))
        for name in ("inputs", "outputs"):
            _check_orthogonal(name, getattr(self, name))
        expected = (len(self.inputs), len(self.outputs))
        if self.variance.shape != expected:
            raise ValueError(
                "`variance` must have a number for each pair of eigenvectors, "
                f"shape {expected}. Received: variance of shape "
                f"{self.variance.shape}"
            )
        if np.any(self.variance < 0):
            raise ValueError(
                "`variance` must not be negative. Received: variance with an "
                f"entry {self.variance.min()}"
            )

    @property
    def variables(self) -> list[int]:
        """Indices of the kernel and, if present, the bias."""
        return [i for i in (self.kernel, self.bias) if i is not None]

    def draw(self, rng: np.random.Generator, dtype: Any) -> np.ndarray:
        """Returns a sample of (1) with M = 0, of shape `(in, out)`.

        Args:
            rng: A NumPy generator.
            dtype: Dtype of the result.
        """
        noise = rng.standard_normal(self.variance.shape, dtype=dtype)
        noise *= np.sqrt(self.variance, dtype=dtype)
        inputs = self.inputs.astype(dtype, copy=False)
        outputs = self.outputs.astype(dtype, copy=False)
        return inputs @ noise @ outputs.T  # (1)


def _check_orthogonal(name, matrix):
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1]:
        raise ValueError(
            f"`{name}` must be a square matrix, with eigenvectors as columns. "
            f"Received: {name} of shape {matrix.shape}"
        )
    # Multiply one vector only: a product of two matrices would take longer than
    # many samples. The signs are random, so that errors do not cancel.
    signs = np.random.default_rng(0).choice([-1.0, 1.0], len(matrix))
    signs = signs.astype(matrix.dtype)
    error = np.abs(matrix.T @ (matrix @ signs) - signs).max(initial=0.0)
    if not error < ORTHOGONALITY:
        raise ValueError(
            f"`{name}` must be orthogonal, with eigenvectors of length 1 as "
            f"columns. Received: {name} whose product with its transpose "
            f"deviates from the identity by about {error:.2g}"
        )


@dataclasses.dataclass(frozen=True, eq=False)
class MatrixCurvature:
    """The curvature of a weight matrix, by its two Kronecker factors.

    For the matrix flattened row by row, the curvature of all examples is

        A (x) S,   A = Q_A diag(a) Q_A^T,   S = Q_S diag(s) Q_S^T         (1)

    Args:
        kernel: Index of the kernel among the variables.
        bias: Index of the variable in the last row of the matrix, or `None`.
        inputs: Q_A, orthogonal, of shape `(in, in)`.
        outputs: Q_S, orthogonal, of shape `(out, out)`.
        input_values: a, of shape `(in,)`, not negative.
        output_values: s, of shape `(out,)`, not negative.
    """

    kernel: int
    bias: int | None
    inputs: np.ndarray
    outputs: np.ndarray
    input_values: np.ndarray
    output_values: np.ndarray

    def __post_init__(self):
        # A frozen dataclass allows no other assignment.
        assign = object.__setattr__
        assign(self, "kernel", operator.index(self.kernel))
        if self.bias is not None:
            assign(self, "bias", operator.index(self.bias))
        for name in ("inputs", "outputs", "input_values", "output_values"):
            assign(self, name, as_moment(name, getattr(self, name)))
        for name in ("input_values", "output_values"):
            if np.any(getattr(self, name) < 0):
                raise ValueError(
                    f"`{name}` must not be negative. Received: {name} with an "
                    f"entry {getattr(self, name).min()}"
                )

    @classmethod
    def of_factors(
        cls,
        kernel: int,
        bias: int | None,
        *,
        inputs: np.ndarray,
        outputs: np.ndarray,
        dtype: str,
    ) -> "MatrixCurvature":
        """Returns the curvature with the factors A and S.

        Args:
            kernel: Index of the kernel among the variables.
            bias: Index of the variable in the last row of the matrix, or
                `None`.
            inputs: A, positive semidefinite.
            outputs: S, positive semidefinite.
            dtype: Dtype of the result. The decomposition uses float64.
        """
        (a, q_a), (s, q_s) = (
            np.linalg.eigh(np.asarray(factor, "float64"))
            for factor in (inputs, outputs)
        )
        # Rounding may make eigenvalues of 0 negative.
        arrays = q_a, q_s, np.maximum(a, 0.0), np.maximum(s, 0.0)
        return cls(kernel, bias, *(array.astype(dtype) for array in arrays))

    @property
    def eigenvalues(self) -> np.ndarray:
        """Eigenvalues of (1), in float64, of shape `(in, out)`."""
        return np.outer(
            self.input_values.astype("float64"),
            self.output_values.astype("float64"),
        )

    def covariance(
        self, prior_precision: float, temperature: float
    ) -> MatrixCovariance:
        """Returns the covariance `(A (x) S / T + delta I)^-1`.

        Args:
            prior_precision: delta.
            temperature: T.
        """
        precision = self.eigenvalues / temperature + prior_precision
        variance = (1.0 / precision).astype(self.inputs.dtype)
        return MatrixCovariance(
            self.kernel, self.bias, self.inputs, self.outputs, variance
        )


def as_curvatures(name: str, values: Any) -> list[MatrixCurvature]:
    """Returns a list of `MatrixCurvature`, or raises an error.

    Args:
        name: Name of the argument.
        values: The argument.
    """
    for i, value in enumerate(as_list(name, values, "`MatrixCurvature`")):
        if not isinstance(value, MatrixCurvature):
            raise ValueError(
                f"`{name}` must hold `keras_bdl.extend.MatrixCurvature`. "
                f"Received: {name}[{i}] of type {type(value).__name__}"
            )
    return list(values)
