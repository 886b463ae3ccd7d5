"""Gaussian posterior of independent weights, and the blocks of a covariance."""

import copy
import dataclasses
import operator
from collections.abc import Iterator
from collections.abc import Sequence
from typing import Any
from typing import Self

import numpy as np
from keras import ops

from keras_bdl._aliases import ArrayLike
from keras_bdl._arguments import as_list
from keras_bdl._arguments import check_bool
from keras_bdl._arguments import check_number
from keras_bdl._backend import adopted
from keras_bdl._random._seeds import generator
from keras_bdl.posteriors._covered_weights import Structure
from keras_bdl.posteriors._posterior import Posterior
from keras_bdl.posteriors._stacked import Stacked
from keras_bdl.posteriors._stacked import aligned_empty
from keras_bdl.posteriors._stacked import in_threads

# Largest error of a product that should be the identity. The error of
# eigenvectors in float32 is far smaller.
ORTHOGONALITY = 1e-3

# This many entries fit into the cache, and BLAS multiplies so many pairs of
# numbers in one thread: its own threads would wait for ours.
BLOCK = 2**17

# The first entry of each tuple of `layout_and_arrays`.
VARIANCE, MATRIX, COLUMNS = "variance", "matrix", "columns"


class Gaussian(Posterior):
    """Independent Gaussians over the trainable variables of a model.

    `VOGN`, `IVON`, `SWA` and the objectives return this posterior. A sample is

        w = mean + sqrt(scale) * sqrt(variance) * z,    z ~ N(0, I)       (1)

    Args:
        mean: One array for each trainable variable.
        variance: One array for each array of `mean`, not negative, or `None`
            for a variable that does not vary. Defaults to `None`: all
            variances are zero, so every sample is the mean.
        scale: Factor of the whole covariance. `0` makes every sample the
            mean. Defaults to `1.0`.
        names: The `name` of each variable, to recognise the model. Defaults
            to `None`: only shapes are compared.
        trained_under_draws: Whether training drew the weights from this
            posterior. The BatchNorm statistics of the model are then averages
            over posterior samples and need no new estimate. Defaults to
            `False`.

    Example:

    ```python
    weights = [np.asarray(v) for v in model.trainable_variables]
    narrow = keras_bdl.posteriors.Gaussian(
        weights, [np.full(w.shape, 1e-4) for w in weights]
    )
    prediction = keras_bdl.predict(model, x_test, narrow, samples=5)
    ```
    """

    structure: Structure

    def __init__(
        self,
        mean: Sequence[ArrayLike],
        variance: Sequence[ArrayLike | None] | None = None,
        *,
        scale: float = 1.0,
        names: Sequence[str] | None = None,
        trained_under_draws: bool = False,
    ):
        self._mean = _as_moments("mean", mean)
        if not self._mean:
            raise ValueError(
                "`mean` must have at least one array, one for each trainable "
                "variable. Received: mean=[]"
            )
        super().__init__(Structure([m.shape for m in self._mean], names))
        self._variance = None
        if variance is not None:
            self._variance = _as_moments("variance", variance, optional=True)
            self._check_shapes("variance", self._variance)
            for i, v in enumerate(self._variance):
                if v is not None:
                    check_not_negative("variance", v, f"variance[{i}]")
        self._scale = float(check_number("scale", scale, at_least=0.0))
        self.trained_under_draws = check_bool(
            "trained_under_draws", trained_under_draws
        )

    @property
    def scale(self) -> float:
        """Factor of the whole covariance."""
        return self._scale

    @property
    def is_point(self) -> bool:
        """Whether the covariance is zero."""
        return self._scale == 0 or not self._spreads()

    def with_scale(self, scale: float) -> Self:
        """Returns this posterior with another `scale`.

        The two posteriors share their arrays.

        Args:
            scale: Factor of the whole covariance.
        """
        other = copy.copy(self)
        other._scale = float(check_number("scale", scale, at_least=0.0))
        return other

    def mean(self) -> list[np.ndarray]:
        """Returns the means, read-only."""
        return list(self._mean)

    def covariance_blocks(self) -> "list[KroneckerBlock] | None":
        """Returns the variance of each variable that varies."""
        return blocks_of_variances(self._variance or (), self._scale)

    def sample(self, seed: int) -> list[np.ndarray]:
        """Returns the sample (1) with the noise of a seed."""
        draws = self._draws([seed])
        return [
            draws[i][0] if i in draws else mean.copy()
            for i, mean in enumerate(self._mean)
        ]

    def stacked(
        self, model: Any, seeds: Sequence[int], *, centered: bool = False
    ) -> Stacked:
        """Returns samples; only variables with a variance are in memory."""
        kind = type(self)
        if (
            kind.sample is not Gaussian.sample
            or kind.assignments is not Posterior.assignments
        ):  # a class of a user, which draws in another way
            return super().stacked(model, seeds, centered=centered)
        draws = self._draws(seeds, centered)
        pairs = list(enumerate(self.variables(model)))
        return Stacked(
            [(v, self._mean[i]) for i, v in pairs if i not in draws],
            [
                (v, ops.cast(adopted(draws.pop(i)), v.dtype))
                for i, v in pairs
                if i in draws
            ],
        )

    def get_state(self) -> dict[str, Any]:
        """Returns all arguments."""
        return {
            **super().get_state(),
            "mean": self._mean,
            "variance": self._variance,
            "scale": self._scale,
            "trained_under_draws": self.trained_under_draws,
        }

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> Self:
        """Returns the posterior that `get_state` described."""
        return cls(**cls._arguments_of(state))

    @classmethod
    def _arguments_of(cls, state: dict[str, Any]) -> dict[str, Any]:
        return {
            "mean": state["mean"],
            "variance": state["variance"],
            "scale": state["scale"],
            "names": state["structure"]["names"],
            "trained_under_draws": state.get("trained_under_draws", False),
        }

    def _facts(self) -> dict[str, Any]:
        return {**super()._facts(), "scale": self._scale}

    def _spreads(self) -> bool:
        """Returns whether the covariance is not zero for `scale=1`."""
        return any(map(self._varies, range(len(self._mean))))

    def _varies(self, index: int) -> bool:
        """Returns whether samples of a variable differ for `scale=1`."""
        variance = None if self._variance is None else self._variance[index]
        return variance is not None and bool(np.any(variance))

    def _draws(
        self, seeds: Sequence[int], centered: bool = False
    ) -> dict[int, np.ndarray]:
        """Returns the samples of each variable that varies, stacked.

        Nothing else of their size is in memory. If `centered`, the samples are
        those minus the mean.
        """
        if self._scale == 0:
            return {}
        draws = {
            i: aligned_empty((len(seeds), *mean.shape), mean.dtype)
            for i, mean in enumerate(self._mean)
            if self._varies(i)
        }

        def fill(samples: slice) -> None:
            rngs = [generator(seed) for seed in seeds[samples]]
            rows = {
                i: draw[samples].reshape(len(rngs), -1)
                for i, draw in draws.items()
            }
            for i in self._noises(rows, rngs):
                if i not in rows:
                    continue
                scale = np.sqrt(self._scale).astype(rows[i].dtype)
                for columns in blocks_of(rows[i]):
                    part = rows[i][:, columns]
                    part *= scale
                    if not centered:
                        part += self._mean[i].reshape(-1)[columns]  # (1)

        in_threads(fill, len(seeds), sum(d.size for d in draws.values()))
        return draws

    def _noises(
        self, rows: dict[int, np.ndarray], rngs: Sequence[np.random.Generator]
    ) -> Iterator[int]:
        """Writes the noise for `scale=1`; yields each index when it is done.

        `rows` has an array for each variable that varies, with a row for each
        generator.
        """
        for i in range(len(self._mean)):
            self._write_noise(i, rows, rngs)
            yield i

    def _write_noise(
        self,
        index: int,
        rows: dict[int, np.ndarray],
        rngs: Sequence[np.random.Generator],
    ) -> None:
        """Writes the noise of independent weights."""
        variance = None if self._variance is None else self._variance[index]
        noise = rows.get(index)
        if variance is None:
            if noise is not None:
                noise[...] = 0.0
            return
        if noise is None:  # all zero; the next variable has later numbers
            dtype = self._mean[index].dtype
            noise = np.empty((len(rngs), variance.size), dtype)
        for columns in blocks_of(noise):
            part = noise[:, columns]
            for row, rng in zip(part, rngs, strict=True):
                rng.standard_normal(out=row, dtype=row.dtype)
            part *= np.sqrt(variance.reshape(-1)[columns], dtype=part.dtype)

    def _check_shapes(
        self, name: str, arrays: Sequence, leading: tuple = ()
    ) -> None:
        shapes = [(*leading, *m.shape) for m in self._mean]
        for i, (array, shape) in enumerate(zip(arrays, shapes, strict=False)):
            if array is not None and array.shape != shape:
                raise ValueError(
                    f"`{name}` must have the shapes of `mean`"
                    f"{' after an axis of columns' * bool(leading)}. "
                    f"Received: {name}[{i}] of shape {array.shape}, expected "
                    f"{shape}"
                )
        if len(arrays) != len(shapes):
            raise ValueError(
                f"`{name}` must have one array for each array of `mean`. "
                f"Received: {len(arrays)} for {len(shapes)}"
            )


def blocks_of(rows: np.ndarray, entries: int = BLOCK) -> Iterator[slice]:
    """Yields columns: all rows of them together have so many entries."""
    size = max(16, entries // max(1, len(rows)))
    for start in range(0, rows.shape[1], size):
        yield slice(start, start + size)


@dataclasses.dataclass(frozen=True, eq=False)
class KroneckerBlock:
    """A covariance or curvature of a weight matrix, by its Kronecker factors.

    The weights form a matrix: a kernel `(in, out)`, optionally with a bias as
    its last row. For the matrix flattened row by row, the block is

        (Q_A (x) Q_S) diag(values) (Q_A (x) Q_S)^T                        (1)

    Let A = Q_A diag(a) Q_A^T and S = Q_S diag(s) Q_S^T be Kronecker factors
    of the curvature per example. N examples and a prior of precision delta
    have a covariance with the values `1 / (N a_j s_k + delta)`. Then (1) is the
    exact inverse of `N A (x) S + delta I`.

    Args:
        kernel: Index of the kernel among the variables. The first axes of the
            kernel make up `in`, and the other axes make up `out`.
        bias: Index of the variable in the last row of the matrix, or `None`.
        inputs: Q_A, orthogonal, of shape `(in, in)` with eigenvectors as
            columns. `in` includes the row of the bias. `None` for independent
            weights, whose `values` have the shape of the kernel.
        outputs: Q_S, orthogonal, of shape `(out, out)`. `None` for the
            identity: the columns of the matrix are independent.
        values: The eigenvalue of each pair of eigenvectors, `(in, out)`, not
            negative. Or a pair of vectors, a and s: the eigenvalues are all
            products `a_j s_k`.
    """

    kernel: int
    bias: int | None
    inputs: Any
    outputs: Any
    values: Any

    def __post_init__(self) -> None:
        # A frozen dataclass allows no other assignment.
        assign = object.__setattr__
        assign(self, "kernel", operator.index(self.kernel))
        if self.bias is not None:
            assign(self, "bias", operator.index(self.bias))
        if self.inputs is None:
            return
        for name in ("inputs", "outputs"):
            if getattr(self, name) is None:
                continue
            assign(self, name, as_moment(name, getattr(self, name)))
            _check_orthogonal(name, getattr(self, name))
        values: Any
        if isinstance(self.values, tuple):
            values = tuple(as_moment("values", v) for v in self.values)
            shape = tuple(len(v) for v in values)
        else:
            values = as_moment("values", self.values)
            shape = values.shape
        assign(self, "values", values)
        outs = shape[-1] if self.outputs is None else len(self.outputs)
        expected = (len(self.inputs), outs)
        if shape != expected:
            raise ValueError(
                "`values` must have a number for each pair of eigenvectors, "
                f"shape {expected}. Received: values of shape {shape}"
            )
        for array in values if isinstance(values, tuple) else (values,):
            check_not_negative("values", array, "values")

    @classmethod
    def of_factors(
        cls,
        kernel: int,
        bias: int | None,
        *,
        inputs: ArrayLike | tuple[ArrayLike, ArrayLike],
        outputs: ArrayLike,
        dtype: str,
    ) -> "KroneckerBlock":
        """Returns the curvature `A (x) S` of positive semidefinite A and S.

        Args:
            kernel: Index of the kernel among the variables.
            bias: Index of the bias, or `None`.
            inputs: A, or its eigenvalues and eigenvectors.
            outputs: S, or its diagonal if S is diagonal.
            dtype: Dtype of the result. The decomposition uses float64.
        """
        (a, q_a), (s, q_s) = map(_decomposed, (inputs, outputs))
        # Rounding may make eigenvalues of 0 negative.
        values = tuple(np.maximum(v, 0.0).astype(dtype) for v in (a, s))
        q_s = None if q_s is None else q_s.astype(dtype)
        return cls(kernel, bias, q_a.astype(dtype), q_s, values)

    @property
    def variables(self) -> list[int]:
        """Indices of the kernel and, if present, the bias."""
        return [i for i in (self.kernel, self.bias) if i is not None]

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the matrix, `(in, out)`."""
        if isinstance(self.values, tuple):
            return tuple(len(v) for v in self.values)
        return self.values.shape

    @property
    def eigenvalues(self) -> np.ndarray:
        """The eigenvalues of (1), of shape `(in, out)`."""
        if isinstance(self.values, tuple):
            a, s = (v.astype("float64") for v in self.values)
            return np.outer(a, s)
        return self.values

    def inverse(
        self, *, prior_precision: float, temperature: float = 1.0
    ) -> "KroneckerBlock":
        """Returns the covariance `(C / T + delta I)^-1` of a curvature C.

        Args:
            prior_precision: delta.
            temperature: T. Defaults to `1.0`.
        """
        precision = self.eigenvalues / temperature + prior_precision
        return dataclasses.replace(
            self, values=(1.0 / precision).astype(self.inputs.dtype)
        )

    def draw(self, rng: np.random.Generator, dtype: Any) -> np.ndarray:
        """Returns a sample of N(0, (1)), a matrix `(in, out)`.

        With E ~ N(0, I), the sample is `Q_A [E * sqrt(values)] Q_S^T`.

        Args:
            rng: A NumPy generator.
            dtype: Dtype of the result.
        """
        values = self.eigenvalues
        noise = rng.standard_normal(values.shape, dtype=dtype)
        noise *= np.sqrt(values, dtype=dtype)
        rows = self.inputs.astype(dtype, copy=False) @ noise
        if self.outputs is None:
            return rows
        return rows @ self.outputs.astype(dtype, copy=False).T


def _decomposed(factor: Any) -> tuple[np.ndarray, Any]:
    """Returns eigenvalues and eigenvectors, `None` for a diagonal."""
    if isinstance(factor, tuple):
        return factor
    factor = np.asarray(factor, "float64")
    return (factor, None) if factor.ndim == 1 else np.linalg.eigh(factor)


def blocks_of_variances(
    variances: Sequence[np.ndarray | None], scale: float
) -> list[KroneckerBlock]:
    """Returns a block of independent weights for each variable that varies."""
    return [
        KroneckerBlock(i, None, None, None, v * v.dtype.type(scale))
        for i, v in enumerate(variances)
        if v is not None
    ]


def layout_and_arrays(
    blocks: Sequence[KroneckerBlock],
) -> tuple[tuple[tuple, ...], list[np.ndarray]]:
    """Returns blocks as hashable tuples, and the arrays of each in turn.

    The tuples are `("variance", index)`, with the array of the variances,
    `("matrix", kernel, bias)`, with the arrays Q_A, Q_S and the variances, and
    `("columns", kernel, bias)` without Q_S.
    """
    layout: list[tuple] = []
    arrays: list[np.ndarray] = []
    for b in blocks:
        if b.inputs is None:
            layout.append((VARIANCE, b.kernel))
            arrays.append(b.values)
        else:
            columns = b.outputs is None
            layout.append((COLUMNS if columns else MATRIX, b.kernel, b.bias))
            own = [b.inputs, b.outputs, b.values]
            arrays += [a for a in own if a is not None]
    return tuple(layout), arrays


def _check_orthogonal(name: str, matrix: np.ndarray) -> None:
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


def check_not_negative(name: str, array: np.ndarray, place: str) -> None:
    """Raises an error if an array has a negative entry."""
    if np.any(array < 0):
        raise ValueError(
            f"`{name}` must not be negative. Received: {array.min()} in {place}"
        )


def all_finite(array: np.ndarray) -> bool:
    """Returns whether an array is finite, without a second array."""
    return bool(np.isfinite(np.sum(array, dtype="float64")))


def as_moment(name: str, array: ArrayLike) -> np.ndarray:
    """Returns a finite, read-only array in float32 or float64."""
    array = np.asarray(array)
    if array.dtype != "float64":
        array = array.astype("float32", copy=False)
    if not all_finite(array):
        raise ValueError(
            f"`{name.partition('[')[0]}` must be finite. Received: NaN or "
            f"infinity in {name}. Check whether the training diverged."
        )
    return read_only(array)


def read_only(array: np.ndarray) -> np.ndarray:
    """Returns a read-only view of an array."""
    view = array.view()
    view.flags.writeable = False
    return view


def _as_moments(name: str, arrays: Any, optional: bool = False) -> list:
    return [
        None if array is None and optional else as_moment(f"{name}[{i}]", array)
        for i, array in enumerate(as_list(name, arrays, "arrays"))
    ]
