"""The curvature of a matrix of weights, by its two factors."""

import dataclasses
import operator

import numpy as np

from keras_bdl.posterior_arguments import as_list
from keras_bdl.posteriors.gaussian import as_moment
from keras_bdl.posteriors.matrix_covariance import MatrixCovariance


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
