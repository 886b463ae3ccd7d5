"""Gaussian posteriors of independent weights, or of independent matrices."""

import copy
import dataclasses
import math
from collections.abc import Iterator
from collections.abc import Sequence
from typing import Any
from typing import Self

import numpy as np

from keras_bdl._aliases import ArrayLike
from keras_bdl._arguments import as_list
from keras_bdl._arguments import check_bool
from keras_bdl._arguments import check_number
from keras_bdl._random._keyed_noise import generator
from keras_bdl.posteriors._covered_weights import Structure
from keras_bdl.posteriors._kronecker_block import KroneckerBlock
from keras_bdl.posteriors._kronecker_block import as_blocks
from keras_bdl.posteriors._kronecker_block import as_moment
from keras_bdl.posteriors._kronecker_block import blocks_of_variances
from keras_bdl.posteriors._kronecker_block import check_not_negative
from keras_bdl.posteriors._posterior import Posterior


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

    def covariance_blocks(self) -> list[KroneckerBlock] | None:
        """Returns the variance of each variable that varies."""
        return blocks_of_variances(self._variance or (), self._scale)

    def sample(self, seed: int) -> list[np.ndarray]:
        """Returns the sample (1) with the noise of a seed."""
        rng = generator(seed)
        draw = []
        for mean, noise in zip(self._mean, self._noises(rng), strict=True):
            noise *= np.sqrt(self._scale).astype(noise.dtype)
            noise += mean
            draw.append(noise)  # (1)
        return draw

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
        return self._variance is not None and any(map(np.any, self._variance))

    def _noises(self, rng: np.random.Generator) -> Iterator[np.ndarray]:
        """Yields a new array for each variable: the noise for `scale=1`."""
        for i, mean in enumerate(self._mean):
            noise = np.zeros(mean.shape, mean.dtype)
            if self._variance is not None and self._variance[i] is not None:
                rng.standard_normal(out=noise, dtype=noise.dtype)
                noise *= np.sqrt(self._variance[i], dtype=noise.dtype)
            yield noise

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
                *(m[name] for name in ("kernel", "bias", "inputs", "outputs")),
                m["variance"],
            )
            for m in state["matrices"]
        ]
        return {**super()._arguments_of(state), "matrices": matrices}

    def _facts(self) -> dict[str, Any]:
        return {**super()._facts(), "num_matrices": len(self._matrices)}

    def _spreads(self) -> bool:
        return super()._spreads() or any(
            np.any(matrix.values) for matrix in self._matrices
        )

    def _noises(self, rng: np.random.Generator) -> Iterator[np.ndarray]:
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

    def _check_fit(self, position: int, matrix: KroneckerBlock) -> None:
        """Raises an error if a matrix does not fit its variables."""
        for index in matrix.variables:
            if index not in range(len(self._mean)):
                raise ValueError(
                    "`matrices` must have indices of `mean`, which has "
                    f"{len(self._mean)} entries. Received: matrices[{position}]"
                    f" with the variables {matrix.variables}"
                )
        rows, outputs = len(matrix.inputs), len(matrix.outputs)
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


def _as_moments(name: str, arrays: Any, optional: bool = False) -> list:
    return [
        None if array is None and optional else as_moment(f"{name}[{i}]", array)
        for i, array in enumerate(as_list(name, arrays, "arrays"))
    ]
