"""Gaussian posterior whose covariance is diagonal plus low rank."""

from collections.abc import Iterator
from collections.abc import Sequence
from typing import Any

import numpy as np

from keras_bdl._aliases import ArrayLike
from keras_bdl._arguments import as_list
from keras_bdl._arguments import check_bool
from keras_bdl.posteriors._gaussian import BLOCK
from keras_bdl.posteriors._gaussian import Gaussian
from keras_bdl.posteriors._gaussian import KroneckerBlock
from keras_bdl.posteriors._gaussian import all_finite
from keras_bdl.posteriors._gaussian import blocks_of
from keras_bdl.posteriors._gaussian import read_only


class LowRankGaussian(Gaussian):
    """The Gaussian of SWAG over the trainable variables of a model.

    `keras_bdl.SWAG` returns this posterior. Let `D` be the matrix of
    deviations. It has `c` columns, and one row for each weight of the network.
    A sample is

        w = mean + sqrt(scale) * (sqrt(variance) * z1 + D z2 / sqrt(c - 1)),
        z1 ~ N(0, I),    z2 ~ N(0, I_c)                                   (1)

    and the covariance is `scale * (diag(variance) + D D' / (c - 1))`.

    Args:
        mean: One array for each trainable variable.
        variance: One array for each array of `mean`, not negative, or `None`
            for zero.
        deviations: The rows of `D` for each variable, an array of shape
            `(c, *shape)`, kept in float32 or float16. Without columns
            (`c = 0` or `None`) the covariance is diagonal; a single column is
            an error. Defaults to `None`.
        scale: Factor of the whole covariance. Defaults to `0.5`, the value in
            the paper. With `c = 0` the paper uses 1.
        block: Whether each variable has a `z2` of its own, which makes the
            covariance block-diagonal. Defaults to `False`, one `z2` for the
            whole network.
        names: The `name` of each variable, to recognise the model. Defaults
            to `None`: only shapes are compared.
        trained_under_draws: Whether training drew the weights from this
            posterior, see `Gaussian`. Defaults to `False`.

    Example:

    ```python
    mean = model.get_weights()
    variance = [np.full_like(w, 0.01) for w in mean]
    posterior = keras_bdl.posteriors.LowRankGaussian(mean, variance, scale=1)
    keras_bdl.predict(model, x_test, posterior, verbose=0)
    ```

    Reference:
        - [Maddox et al., 2019](https://arxiv.org/abs/1902.02476), eq. 1,
          with K for `c` and 1/2 for `scale`
    """

    def __init__(
        self,
        mean: Sequence[ArrayLike],
        variance: Sequence[ArrayLike | None] | None,
        deviations: Sequence[ArrayLike] | None = None,
        *,
        scale: float = 0.5,
        block: bool = False,
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
        self.block = check_bool("block", block)
        if deviations is None:
            deviations = []
        self._deviations = [
            _as_columns(i, d)
            for i, d in enumerate(as_list("deviations", deviations, "arrays"))
        ]
        if self._deviations:
            self._check_shapes("deviations", self._deviations, (self.rank,))
        if self.rank == 1:
            raise ValueError(
                "`deviations` must have at least 2 columns, or none for a "
                "diagonal covariance. Collect the weights more often. "
                "Received: 1 column"
            )

    @property
    def rank(self) -> int:
        """The number of columns of `D`."""
        return len(self._deviations[0]) if self._deviations else 0

    def get_state(self) -> dict[str, Any]:
        """Returns all arguments."""
        return {
            **super().get_state(),
            "deviations": self._deviations,
            "block": self.block,
        }

    @classmethod
    def _arguments_of(cls, state: dict[str, Any]) -> dict[str, Any]:
        own = {name: state[name] for name in ("deviations", "block")}
        return {**super()._arguments_of(state), **own}

    def _facts(self) -> dict[str, Any]:
        return {**super()._facts(), "rank": self.rank, "block": self.block}

    def covariance_blocks(self) -> list[KroneckerBlock] | None:
        """Returns `None` with deviations, which correlate all weights."""
        return None if self.rank else super().covariance_blocks()

    def _varies(self, index: int) -> bool:
        return super()._varies(index) or bool(
            self._deviations and np.any(self._deviations[index])
        )

    def _noises(
        self, rows: dict[int, np.ndarray], rngs: Sequence[np.random.Generator]
    ) -> Iterator[int]:
        factors = self._factors(rngs)
        for i in super()._noises(rows, rngs):
            if self.block and i:
                factors = self._factors(rngs)
            if self.rank and i in rows:
                _add_columns(rows[i], self._deviations[i], factors)
            yield i

    def _factors(self, rngs: Sequence[np.random.Generator]) -> np.ndarray:
        """Returns `z2 / sqrt(c - 1)`, a row for each generator."""
        z2 = [rng.standard_normal(self.rank) for rng in rngs]
        return np.stack(z2) / np.sqrt(max(self.rank - 1, 1))


def _add_columns(
    rows: np.ndarray, columns: np.ndarray, factors: np.ndarray
) -> None:
    """Adds the columns times the factors of each row, block by block."""
    columns = columns.reshape(len(columns), -1)
    factors = factors.astype("float32")
    for part in blocks_of(rows, BLOCK // len(columns)):
        rows[:, part] += factors @ columns[:, part].astype(
            "float32", copy=False
        )


def _as_columns(index: int, array: ArrayLike) -> np.ndarray:
    array = np.asarray(array)
    if array.dtype != "float16":
        array = array.astype("float32", copy=False)
    if not all_finite(array):
        raise ValueError(
            "`deviations` must be finite. Received: NaN or infinity in "
            f"deviations[{index}]. Check whether the training diverged or the "
            "deviations exceed the range of float16."
        )
    # A contiguous array can be reshaped without a copy in each sample.
    return read_only(np.ascontiguousarray(array))
