"""The covariance and the curvature of a matrix of weights, by factors."""

import dataclasses
import operator

import numpy as np

from keras_bdl.arguments import as_list
from keras_bdl.posteriors.gaussian import as_moment

# Eigenvectors in float32 stay below, by far; anything else is above.
ORTHOGONALITY = 1e-3


@dataclasses.dataclass(frozen=True, eq=False)
class MatrixCovariance:
    """The covariance of a matrix of weights, in the eigenbases of its factors.

    A kernel `(in, out)`, and perhaps a bias as its last row, is drawn as

        W = M + Q_A [E * sqrt(variance)] Q_S^T,    E ~ N(0, I)            (1)

    so that for W flattened row by row, the covariance is

        (Q_A (x) Q_S) diag(variance) (Q_A (x) Q_S)^T                      (2)

    Kronecker factors A = Q_A diag(a) Q_A^T and S = Q_S diag(s) Q_S^T of the
    curvature per example, N examples and a prior of precision delta have
    `variance = 1 / (N a_j s_k + delta)`, of which (2) is the exact inverse of
    `N A (x) S + delta I`.

    Args:
        kernel: Index of the kernel among the variables. Its axes are those
            of `in`, then those of `out`.
        bias: Index of the variable that is the last row of the matrix, or
            `None`.
        inputs: Q_A, orthogonal, of shape `(in, in)`, where `in` counts the
            row of the bias; the eigenvectors are its columns.
        outputs: Q_S, orthogonal, of shape `(out, out)`.
        variance: The variance of each pair of eigenvectors, `(in, out)`, not
            negative.
    """

    kernel: int
    bias: int | None
    inputs: np.ndarray
    outputs: np.ndarray
    variance: np.ndarray

    def __post_init__(self):
        # The one way to assign to a frozen dataclass.
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
                f"{expected}. Received: variance of shape {self.variance.shape}"
            )
        if np.any(self.variance < 0):
            raise ValueError(
                "`variance` must not be negative. Received: variance with an "
                f"entry {self.variance.min()}"
            )

    @property
    def variables(self):
        """Indices of the kernel and, if it is a row of the matrix, the bias."""
        return [i for i in (self.kernel, self.bias) if i is not None]

    def draw(self, rng, dtype):
        """Returns a draw of (1) with M = 0, of shape `(in, out)`.

        Args:
            rng: A NumPy generator.
            dtype: Of the result.
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
    # One product with a vector, where with a matrix it would take longer than
    # many draws. Random signs leave no error room to cancel.
    signs = np.random.default_rng(0).choice([-1.0, 1.0], len(matrix))
    signs = signs.astype(matrix.dtype)
    error = np.abs(matrix.T @ (matrix @ signs) - signs).max(initial=0.0)
    if not error < ORTHOGONALITY:
        raise ValueError(
            f"`{name}` must be orthogonal, with eigenvectors of length 1 as "
            f"columns. Received: {name} whose product with its transpose "
            f"differs from the identity by about {error:.2g}"
        )


@dataclasses.dataclass(frozen=True, eq=False)
class MatrixCurvature:
    """The curvature of a matrix of weights, by its two factors.

    That of all examples together, for the matrix flattened row by row,

        A (x) S,   A = Q_A diag(a) Q_A^T,   S = Q_S diag(s) Q_S^T         (1)

    Args:
        kernel: As of `MatrixCovariance`.
        bias: As of `MatrixCovariance`.
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
        # The one way to assign to a frozen dataclass.
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
    def of_factors(cls, kernel, bias, inputs, outputs, dtype):
        """Returns the curvature that has the factors A and S.

        Args:
            kernel: As above.
            bias: As above.
            inputs: A, positive semidefinite.
            outputs: S, positive semidefinite.
            dtype: Of the arrays to keep; the decomposition is in float64.
        """
        (a, q_a), (s, q_s) = (
            np.linalg.eigh(np.asarray(factor, "float64"))
            for factor in (inputs, outputs)
        )
        # Rounding makes some that are zero negative.
        arrays = q_a, q_s, np.maximum(a, 0.0), np.maximum(s, 0.0)
        return cls(kernel, bias, *(array.astype(dtype) for array in arrays))

    @property
    def eigenvalues(self):
        """Those of (1), in float64, of shape `(in, out)`."""
        return np.outer(
            self.input_values.astype("float64"),
            self.output_values.astype("float64"),
        )

    def covariance(self, prior_precision: float, temperature: float):
        """Returns the `MatrixCovariance` of `(A (x) S / T + delta I)^-1`.

        Args:
            prior_precision: delta.
            temperature: T.
        """
        precision = self.eigenvalues / temperature + prior_precision
        variance = (1.0 / precision).astype(self.inputs.dtype)
        return MatrixCovariance(
            self.kernel, self.bias, self.inputs, self.outputs, variance
        )


def as_curvatures(name, values):
    """Returns a list of `MatrixCurvature`.

    Args:
        name: The argument.
        values: What came for it.
    """
    for i, value in enumerate(as_list(name, values, "`MatrixCurvature`")):
        if not isinstance(value, MatrixCurvature):
            raise ValueError(
                f"`{name}` must hold `keras_bdl.posteriors.MatrixCurvature`. "
                f"Received: {name}[{i}] of type {type(value).__name__}"
            )
    return list(values)
