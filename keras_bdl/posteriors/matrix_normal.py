"""Gaussian whose covariance has Kronecker factors."""

import dataclasses
import math

import numpy as np

from keras_bdl.arguments import as_list
from keras_bdl.posteriors.gaussian import Gaussian
from keras_bdl.posteriors.matrix_covariance import MatrixCovariance


class MatrixNormal(Gaussian):
    """Gaussians over matrices of weights, in the eigenbases of two factors.

    A layer's matrix, the kernel `(in, out)` with the bias as its last row, is
    drawn as

        W = M + sqrt(scale) * Q_A [E * sqrt(variance)] Q_S^T,
        E ~ N(0, I)                                                       (1)

    see `MatrixCovariance`; other variables are independent, as in `Gaussian`.
    So are two layers.

    Args:
        mean: One array for each trainable variable.
        matrices: A list of `MatrixCovariance`, each of variables of its own.
        variance: For each variable the variances of its entries if it is in
            no matrix, `None` if it is in one or does not vary. Defaults to
            `None`, where the matrices are all that varies.
        scale: Factor of the whole covariance. Defaults to `1.0`.
        names: Leaf names of the variables, to recognise the model by.
            Defaults to `None`: only shapes are compared.
        trained_under_draws: See `Posterior`. Defaults to `False`.

    Reference:
        - Louizos and Welling, [Structured and Efficient Variational Deep
          Learning with Matrix Gaussian Posteriors](
          https://arxiv.org/abs/1603.04733)
        - Zhang et al., [Noisy Natural Gradient as Variational Inference](
          https://arxiv.org/abs/1712.02390), section 3.3; their damping adds
          to each factor, and not to the product
    """

    def __init__(
        self,
        mean: list,
        matrices: list,
        variance: list | None = None,
        scale: float = 1.0,
        names: list | None = None,
        trained_under_draws: bool = False,
    ):
        super().__init__(mean, variance, scale, names, trained_under_draws)
        self._matrices = as_list("matrices", matrices, "`MatrixCovariance`")
        self._of_variable = {}
        for i, matrix in enumerate(self._matrices):
            self._check_fit(i, matrix)
            for index in matrix.variables:
                self._check_alone(i, index)
                self._of_variable[index] = matrix

    @property
    def matrices(self):
        """The `MatrixCovariance` of each layer, a list."""
        return list(self._matrices)

    def get_state(self):
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
    def from_state(cls, state):
        """Returns the posterior that `get_state` described."""
        return cls(
            state["mean"],
            [MatrixCovariance(**fields) for fields in state["matrices"]],
            state["variance"],
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
        drawn = {}
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
        """Refuses a matrix that is not one of these variables."""
        if not isinstance(matrix, MatrixCovariance):
            raise ValueError(
                "`matrices` must hold `keras_bdl.posteriors.MatrixCovariance`. "
                f"Received: matrices[{position}] of type "
                f"{type(matrix).__name__}"
            )
        for index in matrix.variables:
            if index not in range(len(self._mean)):
                raise ValueError(
                    "`matrices` must have indices of `mean`, which has "
                    f"{len(self._mean)} entries. Received: matrices[{position}]"
                    f" of the variables {matrix.variables}"
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
                "`matrices` must fit to `mean`: the kernel has the axes of "
                "`in`, then those of `out`, and the bias, if it is the last "
                "row, those of `out`. "
                f"Received: matrices[{position}] with {rows} rows and "
                f"{outputs} columns{', and the row of the bias,' * bool(bias)} "
                f"for a kernel of shape {shape}"
                f"{'' if bias is None else f' and a bias of shape {bias}'}"
            )

    def _check_alone(self, position, index):
        if index in self._of_variable:
            raise ValueError(
                "`matrices` must have variables of their own. Received: "
                f"matrices[{position}] of variable {index}, which is in a "
                "matrix already"
            )
        if self._variance is not None and self._variance[index] is not None:
            raise ValueError(
                "`variance` must be `None` for a variable that is in a "
                "matrix, whose variance counts. "
                f"Received: variance[{index}] and matrices[{position}], both "
                f"of variable {index}"
            )


def _splits(shape, rows, outputs):
    """Whether axes can be split into those of rows and those of outputs."""
    return any(
        (math.prod(shape[:axis]), math.prod(shape[axis:])) == (rows, outputs)
        for axis in range(len(shape) + 1)
    )
