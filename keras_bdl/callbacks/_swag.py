"""The callback `SWAG`, a Gaussian from stochastic weight averaging."""

import collections
from typing import Any

import numpy as np

from keras_bdl._arguments import check_bool
from keras_bdl._arguments import check_choice
from keras_bdl._arguments import check_count
from keras_bdl._arguments import check_number
from keras_bdl.callbacks._weight_collector import WeightCollector
from keras_bdl.posteriors._low_rank_gaussian import LowRankGaussian


class SWAG(WeightCollector):
    """Fits a Gaussian to weights collected during training.

    Use it with any optimizer and model, at the end of training with a constant
    or cyclical learning rate. Training itself does not change. With `w_n` the
    n-th collected weights, the callback computes

        mean_n = mean_(n-1) + (w_n - mean_(n-1)) / n                      (1)
        variance = 1/n sum_i (w_i - mean_n)^2                             (2)
        d_n = w_n - mean_n                                                (3)

    and keeps the last `rank` columns (3), without `d_1`, which is zero. The
    documentation of `keras_bdl.posteriors.LowRankGaussian` has the equation of
    a sample. The memory of the host holds (1) and (2) in float64. BatchNorm
    statistics must be estimated again for each posterior sample:
    `keras_bdl.predict(..., batch_norm_data=train)`.

    Args:
        rank: Number of columns to keep, at least 2, or 0 for a diagonal
            covariance (for which the paper uses `scale=1`). Defaults to `20`.
        scale: Factor of the whole covariance. With 0, every sample is the
            mean. Defaults to `0.5`, the paper's formula.
        block: Whether the low-rank part is drawn independently for each
            variable. Defaults to `False`.
        deviation_dtype: Dtype of the columns: `"float32"`, or `"float16"` for
            half the memory. In float16, numbers below 6e-8 become zero.
            Defaults to `"float32"`.

    Example:

    ```python
    swag = keras_bdl.SWAG(start_epoch=1, rank=2)
    model.fit(train, epochs=5, callbacks=[swag])
    keras_bdl.predict(model, x_test, swag.posterior, batch_norm_data=train)
    ```

    Reference:
        - [Maddox et al., 2019](https://arxiv.org/abs/1902.02476), algorithm
          1, with K for `rank`
    """

    _settings = (
        *WeightCollector._settings,
        "rank",
        "scale",
        "block",
        "deviation_dtype",
    )

    def __init__(
        self,
        *args,
        rank: int = 20,
        scale: float = 0.5,
        block: bool = False,
        deviation_dtype: str = "float32",
        **kwargs,
    ):
        super().__init__(*args, **kwargs)
        self.rank = check_count("rank", rank, at_least=0)
        if self.rank == 1:
            raise ValueError(
                "`rank` must be 0 or at least 2, because one column has no "
                "spread. Received: rank=1"
            )
        self.scale = float(check_number("scale", scale, at_least=0))
        self.block = check_bool("block", block)
        self.deviation_dtype = check_choice(
            "deviation_dtype", deviation_dtype, ("float32", "float16")
        )
        self._squares: Any = None
        self._columns: collections.deque = collections.deque(maxlen=self.rank)

    @property
    def _needed(self) -> int:
        # The first collection has no column, and one column has no spread.
        return 3 if self.rank else 2

    @property
    def posterior(self) -> LowRankGaussian:
        """A `LowRankGaussian`, a copy of everything collected so far."""
        self._check_collected()
        variance = [s / self.num_collected for s in self._squares]
        deviations = [np.stack(d) for d in zip(*self._columns, strict=True)]
        posterior = LowRankGaussian(
            self._moments(self._mean),
            self._moments(variance),
            deviations,
            scale=self.scale,
            block=self.block,
            names=self._structure.names,
        )
        return posterior.beside(self._trained_weights, self._frozen_weights)

    def get_state(self) -> dict[str, Any]:
        """Returns everything collected, for a checkpoint."""
        squares = self._squares
        return {
            **super().get_state(),
            "squares": squares and [s.copy() for s in squares],
            "columns": list(self._columns),
        }

    def set_state(self, state: dict[str, Any]) -> None:
        """Continues from a state that `get_state` returned."""
        super().set_state(state)
        squares = state["squares"]
        self._squares = squares and [np.array(s) for s in squares]
        self._columns.clear()
        self._columns.extend(state["columns"])

    memory_advice = (
        'Lower `rank`, pass `deviation_dtype="float16"`, or freeze layers with '
        "`trainable=False`."
    )

    def _bytes_of_weight(self):
        # The mean, the squares, and the columns of the latest collections.
        columns = min(self.rank, self._most_collections() or self.rank)
        size = np.dtype(self.deviation_dtype).itemsize
        return 2 * super()._bytes_of_weight() + columns * size

    def _collect(self):
        self._column = None
        super()._collect()
        if self.num_collected > 1:
            self._columns.append(self._column)

    def _add(self, index, part, before, after):
        if self._squares is None:
            self._squares = self._zeros()
        if self._column is None:
            self._column = self._zeros(self.deviation_dtype)
        self._squares[index].reshape(-1)[part] += before * after
        self._column[index].reshape(-1)[part] = after  # (3)
