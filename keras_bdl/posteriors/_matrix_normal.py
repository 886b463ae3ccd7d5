"""Gaussians with Kronecker factors, of a covariance or of a curvature."""

import dataclasses
import math
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Sequence
from typing import Any

import numpy as np

from keras_bdl._aliases import ArrayLike
from keras_bdl._arguments import as_list
from keras_bdl._arguments import check_number
from keras_bdl.posteriors._gaussian import Gaussian
from keras_bdl.posteriors._gaussian import KroneckerBlock
from keras_bdl.posteriors._gaussian import as_moment
from keras_bdl.posteriors._gaussian import blocks_of_variances
from keras_bdl.posteriors._gaussian import check_not_negative


class MatrixNormal(Gaussian):
    """Gaussians over the weight matrices of layers, by Kronecker factors.

    `NoisyKFAC` returns this posterior. The matrix of a layer is the kernel
    `(in, out)` with the bias as its last row. A sample of the matrix is

        W = M + sqrt(scale) * Q_A [E * sqrt(values)] Q_S^T,
        E ~ N(0, I)                                                       (1)

    with the arrays of a `keras_bdl.extend.KroneckerBlock`. Layers are
    independent, and so are the entries of all other variables.

    Args:
        mean: One array for each trainable variable.
        matrices: A list of `KroneckerBlock`, the covariances. Each variable
            belongs to at most one matrix.
        variance: One entry for each variable: the array of the variances, or
            `None` for a variable that is in a matrix or does not vary.
            Defaults to `None`: only the matrices vary.
        scale: Factor of the whole covariance. Defaults to `1.0`.
        names: The `name` of each variable, to recognise the model. Defaults
            to `None`: only shapes are compared.
        trained_under_draws: Whether training drew the weights from this
            posterior, see `Gaussian`. Defaults to `False`.

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
        matrices: Sequence[KroneckerBlock],
        *,
        variance: Sequence[ArrayLike | None] | None = None,
        scale: float = 1.0,
        names: Sequence[str] | None = None,
        trained_under_draws: bool = False,
    ):
        super().__init__(
            mean,
            variance,
            scale=scale,
            names=names,
            trained_under_draws=trained_under_draws,
        )
        self._matrices = as_blocks(matrices)
        self._of_variable: dict[int, KroneckerBlock] = {}
        for i, matrix in enumerate(self._matrices):
            self._check_fit(i, matrix)
            for index in matrix.variables:
                self._check_alone(i, index)
                self._of_variable[index] = matrix

    @property
    def matrices(self) -> list[KroneckerBlock]:
        """The `KroneckerBlock` of each layer."""
        return list(self._matrices)

    def covariance_blocks(self) -> list[KroneckerBlock] | None:
        """Returns the variances of variables, then the matrices."""
        return blocks_of_variances(self._variance or (), self._scale) + [
            dataclasses.replace(m, values=m.values * m.values.dtype.type(s))
            if (s := self._scale) != 1
            else m
            for m in self._matrices
        ]

    def get_state(self) -> dict[str, Any]:
        """Returns all arguments."""
        matrices = [{**vars(m), "variance": m.values} for m in self._matrices]
        for matrix in matrices:
            del matrix["values"]
        return {**super().get_state(), "matrices": matrices}

    @classmethod
    def _arguments_of(cls, state: dict[str, Any]) -> dict[str, Any]:
        matrices = [
            KroneckerBlock(
                m["kernel"],
                m["bias"],
                m["inputs"],
                m["outputs"],
                m["variance"],
            )
            for m in state["matrices"]
        ]
        return {**super()._arguments_of(state), "matrices": matrices}

    def _facts(self) -> dict[str, Any]:
        return {**super()._facts(), "num_matrices": len(self._matrices)}

    def _varies(self, index: int) -> bool:
        matrix = self._of_variable.get(index)
        if matrix is None:
            return super()._varies(index)
        return bool(np.any(matrix.values))

    def _write_noise(
        self,
        index: int,
        rows: dict[int, np.ndarray],
        rngs: Sequence[np.random.Generator],
    ) -> None:
        matrix = self._of_variable.get(index)
        if matrix is None:
            super()._write_noise(index, rows, rngs)
        elif index == min(matrix.variables):
            dtype = self._mean[matrix.kernel].dtype
            kernel = self._mean[matrix.kernel].size
            for row, rng in enumerate(rngs):
                draw = matrix.draw(rng, dtype).reshape(-1)
                for i in matrix.variables:
                    if i in rows:
                        part = slice(kernel)
                        if i == matrix.bias:
                            part = slice(kernel, None)
                        rows[i][row] = draw[part]

    def _check_fit(self, position: int, matrix: KroneckerBlock) -> None:
        """Raises an error if a matrix does not fit its variables."""
        for index in matrix.variables:
            if index not in range(len(self._mean)):
                raise ValueError(
                    "`matrices` must have indices of `mean`, which has "
                    f"{len(self._mean)} entries. Received: matrices[{position}]"
                    f" with the variables {matrix.variables}"
                )
        rows, outputs = matrix.shape
        shape = self._mean[matrix.kernel].shape
        bias = None if matrix.bias is None else self._mean[matrix.bias].shape
        if bias is not None:
            rows -= 1
        splits = any(
            (math.prod(shape[:axis]), math.prod(shape[axis:]))
            == (rows, outputs)
            for axis in range(len(shape) + 1)
        )
        if not splits or (bias is not None and math.prod(bias) != outputs):
            raise ValueError(
                "`matrices` must fit `mean`. The kernel has the axes of `in`, "
                "then those of `out`, and a bias has those of `out`. "
                f"Received: matrices[{position}] with {rows} rows and "
                f"{outputs} columns{', and the row of the bias,' * bool(bias)} "
                f"for a kernel of shape {shape}"
                f"{'' if bias is None else f' and a bias of shape {bias}'}"
            )

    def _check_alone(self, position: int, index: int) -> None:
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


def as_blocks(matrices: Any) -> list[KroneckerBlock]:
    """Returns the argument `matrices` as a list, or raises an error."""
    for i, value in enumerate(as_list("matrices", matrices, "blocks")):
        if not isinstance(value, KroneckerBlock) or value.inputs is None:
            raise ValueError(
                "`matrices` must hold `keras_bdl.extend.KroneckerBlock` with "
                f"eigenvectors. Received: matrices[{i}] of type "
                f"{type(value).__name__}"
            )
    return list(matrices)


class Laplace(MatrixNormal):
    """A Gaussian around trained weights with the curvature of the loss.

    `keras_bdl.fit_laplace` returns this posterior. With the trained weights
    w*, F the Fisher information of all N examples, a prior `N(0, 1/delta)` for
    every weight and temperature T,

        w ~ N(w*, (F / T + delta I)^-1)                                   (1)
        F = sum_i E[g_i g_i^T],  g_i = d log p(y | x_i, w*)/dw,
        y drawn from p(y | x_i, w*)                                       (2)

    The labels in (2) are drawn from the model, because the gradients for the
    labels of the data vanish if the fit is good. For logits, and for means with
    known noise, F is the Gauss-Newton matrix. The posterior keeps two Kronecker
    factors of F for each of `matrices`. For all other weights, the posterior
    keeps the diagonal of F.

    The temperature T changes only the likelihood: (1) targets
    `p(w) p(D | w)^(1/T)`. `with_scale(T)` changes prior and likelihood.

    Args:
        mean: w*, one array for each trainable variable.
        curvature: One entry for each variable: the diagonal of F, an array of
            the shape of the variable, or `None` for a variable that is in a
            matrix or has no noise.
        matrices: A list of `keras_bdl.extend.KroneckerBlock`, the curvature of
            all examples, each with a pair of vectors as `values`.
        prior_precision: delta, positive. A list has one delta for each
            variable; a matrix takes that of its kernel.
        temperature: T, positive. Defaults to `1.0`.
        scale: Factor of the whole covariance. Defaults to `1.0`.
        names: The `name` of each variable, to recognise the model. Defaults
            to `None`: only shapes are compared.
        log_likelihood: `log p(D | w*)`. Defaults to `None`, unknown.
    """

    linearized_by_default = True

    def __init__(
        self,
        mean: Sequence[ArrayLike],
        curvature: Sequence[ArrayLike | None],
        matrices: Sequence[KroneckerBlock],
        *,
        prior_precision: float | Sequence[float],
        temperature: float = 1.0,
        scale: float = 1.0,
        names: Sequence[str] | None = None,
        log_likelihood: float | None = None,
    ):
        self._prior_precision = _as_precision(prior_precision, len(mean))
        self._temperature = float(
            check_number("temperature", temperature, above=0.0)
        )
        self._curvature = [
            None if h is None else _as_curvature(i, h)
            for i, h in enumerate(as_list("curvature", curvature, "arrays"))
        ]
        self._curvatures = as_blocks(matrices)
        self._log_likelihood = log_likelihood
        super().__init__(
            mean,
            [
                c.inverse(
                    prior_precision=self._precision_of(c.kernel),
                    temperature=self._temperature,
                )
                for c in self._curvatures
            ],
            variance=[
                None
                if h is None
                else 1.0
                / (h / self._temperature + self._precision_of(i))  # (1)
                for i, h in enumerate(self._curvature)
            ],
            scale=scale,
            names=names,
        )

    @property
    def prior_precision(self) -> float | list[float]:
        """Precision of the prior, delta; or one for each variable."""
        return self._prior_precision

    def _precision_of(self, index: int) -> float:
        """Returns delta of a variable."""
        one = self._prior_precision
        return one[index] if isinstance(one, list) else one

    @property
    def temperature(self) -> float:
        """Temperature T of the likelihood."""
        return self._temperature

    @property
    def evidence(self) -> "Evidence":
        """The `Evidence`: log marginal likelihood as a function of delta."""
        return self.evidence_of(range(len(self._mean)))

    def evidence_of(self, variables: Iterable[int]) -> "Evidence":
        """Returns what some variables contribute to the `Evidence`.

        Args:
            variables: Indices of variables. A matrix belongs to its kernel.
        """
        variables = set(variables)
        eigenvalues: list[np.ndarray] = []
        uncertain: set[int | None] = set()
        for c in self._curvatures:
            if c.kernel in variables:
                eigenvalues.append(c.eigenvalues)
                uncertain.update((c.kernel, c.bias))
        for i, h in enumerate(self._curvature):
            if h is not None and i in variables:
                eigenvalues.append(h)
                uncertain.add(i)
        means = [m for i, m in enumerate(self._mean) if i in uncertain]
        return Evidence(
            [np.asarray(e, "float64") / self.temperature for e in eigenvalues],
            sum(float(np.sum(np.square(m, dtype="float64"))) for m in means),
        )

    @property
    def log_marginal_likelihood(self) -> float:
        """The Laplace approximation of log p(D | delta).

            log p(D | w*) / T - delta/2 |w*|^2
                - 1/2 log det(F / (T delta) + I)                          (3)

        The first term does not depend on delta; it is left out if the data
        held no labels. w* are the uncertain weights only. The approximation
        holds if w* is the maximum of the posterior for this delta, and if F
        is that of the network at w* (`refinements=0` of `fit_laplace`).
        """
        known = (self._log_likelihood or 0.0) / self.temperature
        kernels = [c.kernel for c in self._curvatures]
        others = [i for i, h in enumerate(self._curvature) if h is not None]
        return known + sum(
            self.evidence_of([i])(self._precision_of(i))
            for i in (*kernels, *others)
        )

    def needs_batch_norm(self, seed: int) -> bool:
        """Returns `False`: F holds for the statistics in the model."""
        return False

    def between(self, other: "Laplace") -> "Laplace":
        """Returns this posterior with curvatures between two posteriors.

        Each curvature has the structure of this posterior, and as its trace
        the geometric mean of both traces. Fixed-point iterations that would
        overshoot converge with this step.

        Args:
            other: A posterior of the same model.
        """
        curvature = [
            None if h is None or old is None else h * _between(h, old)
            for h, old in zip(self._curvature, other._curvature, strict=True)
        ]
        matrices = [
            dataclasses.replace(
                new,
                values=(
                    new.values[0],
                    new.values[1] * _between(new.eigenvalues, old.eigenvalues),
                ),
            )
            for new, old in zip(
                self._curvatures, other._curvatures, strict=True
            )
        ]
        return type(self)(
            **{
                **self._arguments(),
                "curvature": curvature,
                "matrices": matrices,
            }
        )

    def with_prior_precision(
        self, prior_precision: float | Sequence[float]
    ) -> "Laplace":
        """Returns this posterior with another prior precision.

        Args:
            prior_precision: delta, or one delta for each variable.
        """
        other = type(self)(
            **{**self._arguments(), "prior_precision": prior_precision}
        )
        return other.beside(self.trained_weights, self.frozen_weights)

    def get_state(self) -> dict[str, Any]:
        """Returns all arguments."""
        state = super().get_state()
        kept = ("kind", "structure", "frozen_weights", "trained_weights")
        return {
            **{name: state[name] for name in kept if name in state},
            **self._arguments(),
            "matrices": [
                {
                    "kernel": c.kernel,
                    "bias": c.bias,
                    "inputs": c.inputs,
                    "outputs": c.outputs,
                    "input_values": c.values[0],
                    "output_values": c.values[1],
                }
                for c in self._curvatures
            ],
        }

    @classmethod
    def _arguments_of(cls, state: dict[str, Any]) -> dict[str, Any]:
        names = ["mean", "curvature", "prior_precision", "temperature"]
        names += ["scale", "names", "log_likelihood"]
        matrices = [
            KroneckerBlock(
                m["kernel"],
                m["bias"],
                m["inputs"],
                m["outputs"],
                (m["input_values"], m["output_values"]),
            )
            for m in state["matrices"]
        ]
        return {**{name: state[name] for name in names}, "matrices": matrices}

    def _facts(self) -> dict[str, Any]:
        return {
            **super()._facts(),
            "prior_precision": self.prior_precision,
            "temperature": self.temperature,
        }

    def _arguments(self) -> dict[str, Any]:
        return {
            "mean": self._mean,
            "curvature": self._curvature,
            "matrices": self._curvatures,
            "prior_precision": self.prior_precision,
            "temperature": self.temperature,
            "scale": self.scale,
            "names": self.structure.names,
            "log_likelihood": self._log_likelihood,
        }


class Evidence:
    """The marginal likelihood of a `Laplace`, as a function of delta.

    With d weights w* at the maximum of the posterior, a prior `N(0, 1/delta)`
    and lambda_i the eigenvalues of the curvature of the data,

        log p(D | delta) = log p(D | w*) + log N(w*; 0, 1/delta)
                + d/2 log(2 pi) - 1/2 sum_i log(lambda_i + delta)
            = log p(D | w*) - delta/2 |w*|^2
                - 1/2 sum_i log(1 + lambda_i / delta)                     (1)

    Twice the derivative of (1) with respect to log delta is

        sum_i lambda_i / (lambda_i + delta) - delta |w*|^2                (2)

    which falls from positive to negative values, so (1) has one maximum.

    Args:
        eigenvalues: The lambda_i, in any number of arrays.
        square_norm: |w*|^2.
    """

    def __init__(self, eigenvalues: Sequence[np.ndarray], square_norm: float):
        self._eigenvalues = eigenvalues
        self._square_norm = square_norm

    def __call__(self, delta: float) -> float:
        """Returns the log marginal likelihood (1) without `log p(D | w*)`."""
        logs = sum(np.sum(np.log1p(e / delta)) for e in self._values())
        return float(-0.5 * (delta * self._square_norm + logs))  # (1)

    def effective_number(self, delta: float) -> float:
        """Returns how many weights the data determine, the first sum in (2)."""
        return float(sum(np.sum(e / (e + delta)) for e in self._values()))

    def prior_of_weights(self) -> float:
        """Returns d / |w*|^2, the delta that fits the weights themselves."""
        if not self._square_norm > 0:
            raise ValueError(
                "The trained weights must not all be zero. Pass a number as "
                "`prior_precision`. Received: |w|^2=0"
            )
        return sum(e.size for e in self._eigenvalues) / self._square_norm

    def maximum(self) -> float:
        """Returns the delta with the highest marginal likelihood."""
        from scipy.optimize import brentq

        size = sum(e.size for e in self._eigenvalues)
        if not self._square_norm > 0 or not any(
            np.any(e > 0) for e in self._eigenvalues
        ):
            raise ValueError(
                "The marginal likelihood has no maximum, because all weights "
                "are zero or have no effect on the outputs. Pass a number as "
                "`prior_precision`. "
                f"Received: |w|^2={self._square_norm:g}"
            )

        def slope(log_delta: float) -> float:
            delta = np.exp(log_delta)
            known = self.effective_number(delta)
            return known - delta * self._square_norm  # (2)

        # Bounds of the root. At `high`, (2) is not positive, since its first
        # sum is at most `size`. For a small delta, (2) is positive.
        high = np.log(size / self._square_norm)
        low = high
        while slope(low) <= 0:
            low -= 2.0
        if low == high:
            return float(np.exp(high))
        return float(np.exp(brentq(slope, low, high, xtol=1e-10)))

    def _values(self) -> Iterator[np.ndarray]:
        return (np.asarray(e, "float64") for e in self._eigenvalues)


def _as_precision(value: Any, count: int) -> float | list[float]:
    """Returns a float, or a list of `count` floats."""
    if not isinstance(value, (list, tuple, np.ndarray)) or np.ndim(value) == 0:
        return float(check_number("prior_precision", value, above=0.0))
    if len(value) != count:
        raise ValueError(
            "`prior_precision` must be one number, or one for each of the "
            f"{count} variables. Received: {len(value)} numbers"
        )
    return [
        float(check_number("prior_precision", delta, above=0.0))
        for delta in value
    ]


def _between(new: np.ndarray, old: np.ndarray) -> Any:
    """Returns the factor that scales trace(new) to the mean of both traces.

    The mean is geometric.
    """
    new_trace, old_trace = float(np.sum(new)), float(np.sum(old))
    if not (new_trace > 0 and old_trace > 0):
        return 1.0
    return np.float32((old_trace / new_trace) ** 0.5)


def _as_curvature(index: int, array: ArrayLike) -> np.ndarray:
    array = as_moment(f"curvature[{index}]", array)
    check_not_negative("curvature", array, f"curvature[{index}]")
    return array
