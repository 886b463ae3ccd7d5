"""Stochastic weight averaging, Gaussian."""

import collections

import numpy as np

from keras_bdl.arguments import as_scale
from keras_bdl.arguments import check_bool
from keras_bdl.callbacks.weight_collector import WeightCollector
from keras_bdl.callbacks.weight_collector import check_integer
from keras_bdl.posteriors.low_rank_gaussian import LowRankGaussian


class SWAG(WeightCollector):
    """Fits a Gaussian to the weights visited at the end of training.

    Training itself is not changed. With `w_n` the n-th weights collected,

        mean_n = mean_(n-1) + (w_n - mean_(n-1)) / n                      (1)
        variance = 1/n sum_i (w_i - mean_n)^2                             (2)
        d_n = w_n - mean_n                                                (3)

    and the last `rank` of the columns (3) are kept; `d_1`, which is zero, is
    none of them. How draws are made of these is said in
    `keras_bdl.posteriors.LowRankGaussian`. (1) and (2) are held in float64,
    on the host. BatchNorm statistics have to be estimated again for each
    draw: `keras_bdl.predict(..., batch_norm_data=train)`.

    Args:
        start_epoch: First epoch, counted from 0, that is collected.
        rank: How many columns are kept, at least 2, or 0 for a diagonal
            covariance (the paper then has `scale=1`). Defaults to `20`.
        scale: Factor of the whole covariance; 0 draws the mean. Defaults to
            `0.5`, the paper's formula.
        every: Epochs or steps between two collections. Defaults to `1`.
        unit: `"epoch"`, collect when an epoch ends, or `"step"`, after
            updates of the weights, counted from the begin of `start_epoch`.
            With `compile(steps_per_execution=k)` Keras shows the weights
            only after `k` steps: the next ones that it shows are collected.
            Defaults to `"epoch"`.
        block: Whether the low-rank part is drawn for each variable on its
            own. Defaults to `False`.
        deviation_dtype: `"float32"`, or `"float16"` for half the memory; a
            deviation below 6e-8 is then lost. Defaults to `"float32"`.

    Example:

    ```python
    swag = keras_bdl.SWAG(start_epoch=160, rank=20)
    model.fit(train, epochs=300, callbacks=[swag])
    keras_bdl.predict(
        model, x, posterior=swag.posterior, batch_norm_data=train
    )
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
        start_epoch: int,
        rank: int = 20,
        scale: float = 0.5,
        every: int = 1,
        unit: str = "epoch",
        block: bool = False,
        deviation_dtype: str = "float32",
    ):
        super().__init__(start_epoch, every, unit)
        self.rank = check_integer("rank", rank, 0)
        if self.rank == 1:
            raise ValueError(
                "`rank` must be 0 or at least 2: one column has no spread. "
                "Received: rank=1"
            )
        if deviation_dtype not in ("float32", "float16"):
            raise ValueError(
                '`deviation_dtype` must be "float32" or "float16". '
                f"Received: deviation_dtype={deviation_dtype!r}"
            )
        self.scale = as_scale(scale)
        self.block = check_bool("block", block)
        self.deviation_dtype = deviation_dtype
        self._squares = None
        self._columns = collections.deque(maxlen=self.rank)

    @property
    def _needed(self):
        # The first collection has no column, and one has no spread.
        return 3 if self.rank else 2

    @property
    def posterior(self):
        """A `LowRankGaussian`, which copies what was collected so far."""
        self._check_collected()
        variance = [s / self.num_collected for s in self._squares]
        deviations = [np.stack(d) for d in zip(*self._columns, strict=True)]
        return LowRankGaussian(
            self._moments(self._mean),
            self._moments(variance),
            deviations,
            scale=self.scale,
            block=self.block,
            names=self._structure.names,
        )

    def get_state(self):
        """Returns all that was collected, for a checkpoint."""
        squares = self._squares
        return {
            **super().get_state(),
            "squares": squares and [s.copy() for s in squares],
            "columns": list(self._columns),
        }

    def set_state(self, state):
        """Goes on from what `get_state` returned."""
        super().set_state(state)
        squares = state["squares"]
        self._squares = squares and [np.array(s) for s in squares]
        self._columns.clear()
        self._columns.extend(state["columns"])

    def _collect(self):
        self._column = []
        super()._collect()
        if self.num_collected > 1:
            self._columns.append(self._column)

    def _add(self, index, before, after):
        if self._squares is None:
            self._squares = self._zeros()
        self._squares[index] += before * after
        self._column.append(after.astype(self.deviation_dtype))  # (3)
