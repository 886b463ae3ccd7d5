"""`SWA` and `SWAG`: moments of the weights that training passes through."""

import collections
import math
import warnings
from typing import Any

import keras
import numpy as np

from keras_bdl._arguments import check_bool
from keras_bdl._arguments import check_choice
from keras_bdl._arguments import check_count
from keras_bdl._arguments import check_number
from keras_bdl._keras import batches_of_step
from keras_bdl.callbacks._stateful_callback import CollectedWeights
from keras_bdl.callbacks._stateful_callback import StatefulCallback
from keras_bdl.posteriors._covered_weights import Structure
from keras_bdl.posteriors._gaussian import Gaussian
from keras_bdl.posteriors._held_posterior import posterior_owner
from keras_bdl.posteriors._low_rank_gaussian import LowRankGaussian
from keras_bdl.prediction._batch_norm import batch_norm_layers

# Number of weights whose moments change at a time. Their copies in float64 then
# stay in the cache of the processor.
_PART = 2**14


class WeightCollector(StatefulCallback):
    """Base of `SWA` and `SWAG`: the running mean of the trainable weights.

    A second `fit` adds to the weights collected in the first.
    """

    # A state fits only a callback with the same values of these arguments.
    _settings: tuple[str, ...] = ("start_epoch", "every", "unit")

    def __init__(self, start_epoch: int, every: int, unit: str) -> None:
        super().__init__()
        self.start_epoch = check_count("start_epoch", start_epoch, at_least=0)
        self.every = check_count("every", every)
        self.unit = check_choice("unit", unit, ("epoch", "step"))
        self.num_collected = 0
        self._epochs_run = 0
        self._next_step: int | None = None
        self._first_possible_batch = 0
        self._goes_on = False  # a state was restored, and no epoch has begun
        self._structure: Any = None
        self._dtype = "float32"
        self._mean: Any = None
        self._beside = CollectedWeights()

    @property
    def _needed(self) -> int:
        """The number of collections that a posterior needs."""
        return 1

    def on_train_begin(self, logs: dict | None = None) -> None:
        """Raises an error if training would end without a collection."""
        if not self._goes_on:  # every `fit` counts steps from 0
            self._next_step = None
            self._first_possible_batch = 0
        name = type(self).__name__
        epochs = self.params["epochs"]
        if epochs <= self.start_epoch:
            raise ValueError(
                f"`{name}` would collect nothing. `start_epoch` must be less "
                "than the number of epochs. Train longer or start earlier. "
                f"Received: start_epoch={self.start_epoch}, epochs={epochs}"
            )
        steps = self.model.steps_per_execution
        if self.unit == "step" and self.every < steps:
            raise ValueError(
                f"`{name}` can collect at most once in `steps_per_execution` "
                "steps. Raise `every` to at least `steps_per_execution`. "
                "Received: "
                f"every={self.every}, steps_per_execution={steps}"
            )
        self._check_most_collections()
        self._beside.begin(self, is_first=self._mean is None)

    def on_epoch_begin(self, epoch: int, logs: dict | None = None) -> None:
        """Computes when the next step is due."""
        self._goes_on = False
        if self.unit == "epoch" or epoch < self.start_epoch:
            return
        steps = self._steps()
        if self._next_step is None:
            self._next_step = steps + self.every
        self._first_possible_batch = self._next_step - steps - 1

    def on_train_batch_end(self, batch: int, logs: dict | None = None) -> None:
        """Collects the weights if the settings select this step. Compares N."""
        self.compare_dataset_size(batch)
        if (
            self.skipping
            or self._next_step is None
            or batch < self._first_possible_batch
        ):
            # Reading the step counter would wait for the device.
            return
        steps = self._steps()
        if steps >= self._next_step:
            self._collect()
            passed = (steps - self._next_step) // self.every
            self._next_step += (passed + 1) * self.every
        # The step may be due later: loss scaling skips updates, and gradient
        # accumulation uses several batches for one update.
        self._first_possible_batch = batch + self._next_step - steps

    def on_epoch_end(self, epoch: int, logs: dict | None = None) -> None:
        """Collects the weights if the settings select this epoch."""
        self._goes_on = False
        self._epochs_run = epoch + 1
        since = epoch - self.start_epoch
        if self.unit == "epoch" and since >= 0 and since % self.every == 0:
            self._collect()

    def get_state(self) -> dict[str, Any]:
        """Returns everything collected, for a checkpoint."""
        return {
            "settings": {name: getattr(self, name) for name in self._settings},
            "num_collected": self.num_collected,
            "epochs_run": self._epochs_run,
            "next_step": self._next_step,
            "dtype": self._dtype,
            "structure": self._structure and self._structure.get_state(),
            "mean": _copies(self._mean),
            **self._beside.get_state(),
        }

    def check_state(self, state: dict[str, Any]) -> None:
        for name in self._settings:
            saved = state.get("settings", {}).get(name)
            if saved != getattr(self, name):
                raise ValueError(
                    f"`{type(self).__name__}` must have the settings of its "
                    "saved state. Delete the checkpoint directory or use the "
                    f"old settings. Received: {name}={getattr(self, name)!r}, "
                    f"in the state {name}={saved!r}"
                )

    def set_state(self, state: dict[str, Any]) -> None:
        self.check_state(state)
        self.num_collected = state["num_collected"]
        self._epochs_run = state["epochs_run"]
        self._next_step = state["next_step"]
        self._goes_on = True
        self._first_possible_batch = 0
        self._dtype = state["dtype"]
        structure = state["structure"]
        self._structure = structure and Structure(**structure)
        self._mean = _copies(state["mean"])
        self._beside.set_state(state)

    def _check_most_collections(self) -> None:
        """Raises or warns if `fit` is too short for a posterior."""
        most = self._most_collections()
        if most is None:
            return
        name = type(self).__name__
        most += self.num_collected
        received = (
            f"Received: start_epoch={self.start_epoch}, every={self.every}, "
            f"unit={self.unit!r}, epochs={self.params['epochs']}, "
            f"steps={self.params.get('steps')}"
        )
        if not most:
            raise ValueError(
                f"`{name}` would collect nothing because no step falls due in "
                "this `fit`. "
                f"Train longer or lower `every`. {received}"
            )
        if most < self._needed:
            warnings.warn(
                f"`{name}` needs {self._needed} collections for a posterior "
                f"and will have {most} at most at the end of this `fit`. Train "
                f"longer, start earlier or collect more often. {received}",
                stacklevel=3,
            )

    def _most_collections(self) -> Any:
        """Returns the largest number of collections in this `fit`, or `None`.

        `None` stands for unknown. The real number may be smaller, because
        callbacks do not receive the `initial_epoch` of `fit`.
        """
        epochs = self.params["epochs"]
        if self.unit == "epoch":
            return len(range(self.start_epoch, epochs, self.every))
        steps = self.params.get("steps")
        if steps is None:
            return None
        batches = self.every * batches_of_step(self.model)
        return (epochs - self.start_epoch) * steps // batches

    def _collect(self) -> None:
        """Adds the weights to the running mean, in float64."""
        variables = self.model.trainable_variables
        self._beside.record(self, is_first=self._mean is None)
        if self._mean is None:
            self._structure = Structure.of(variables)
            self._mean = self._zeros()
            if any(v.dtype == "float64" for v in variables):
                self._dtype = "float64"
        self._structure.check(variables)
        self.num_collected += 1
        n = self.num_collected
        for i, variable in enumerate(variables):
            value = variable.numpy().reshape(-1)
            mean = self._mean[i].reshape(-1)
            for start in range(0, mean.size, _PART):
                part = slice(start, start + _PART)
                before = value[part] - mean[part]
                mean[part] += before / n
                self._add(i, part, before, before * ((n - 1) / n))

    def needed_memory(self) -> tuple[str, int, str] | None:
        """Returns the size of everything that is collected."""
        weights = sum(
            math.prod(v.shape) for v in self.model.trainable_variables
        )
        return (
            f"What `{type(self).__name__}` collects of {weights:,} weights",
            weights * self._bytes_of_weight(),
            self.memory_advice,
        )

    memory_advice = "Freeze layers with `trainable=False`."

    def _bytes_of_weight(self) -> Any:
        return np.dtype("float64").itemsize  # the mean

    def _add(
        self, index: int, part: slice, before: np.ndarray, after: np.ndarray
    ) -> None:
        """Uses the deviations of weights from the old and the new mean."""

    def _moments(self, moments: Any) -> list:
        """Converts float64 moments to the dtype of the posterior."""
        return [m.astype(self._dtype) for m in moments]

    def _zeros(self, dtype: Any = "float64") -> list:
        return [np.zeros(shape, dtype) for shape in self._structure.shapes]

    def _steps(self) -> int:
        return int(keras.ops.convert_to_numpy(self.model.optimizer.iterations))

    def _check_collected(self) -> None:
        at_least = self._needed
        if self.num_collected >= at_least:
            return
        raise RuntimeError(
            f"`{type(self).__name__}` needs the weights of at least "
            f"{at_least} collection{'s' * (at_least > 1)}. Train longer, "
            "start earlier or collect more often. Received: "
            f"num_collected={self.num_collected} after {self._epochs_run} "
            f"epochs, with start_epoch={self.start_epoch}, "
            f"every={self.every}, unit={self.unit!r}"
        )


class SWA(WeightCollector):
    """Averages weights collected during training.

    Use it at the end of training, with a constant or cyclical learning rate.
    The average often predicts better than the last weights. The callback needs
    memory for one copy of the weights. `SWAG` also estimates a covariance.

    Training itself does not change. The model keeps the weights of its last
    step unless `replace_weights` is set. The BatchNorm statistics of the model
    do not fit the average. Estimate them again with
    `keras_bdl.predict(..., batch_norm_data=train)` or, after
    `replace_weights`, with
    `keras_bdl.prediction.reestimate_batch_norm(model, x)`.

    A second `fit` adds to the weights collected in the first. Use a new
    callback for a new run or another model.

    Args:
        start_epoch: First epoch, counted from 0, in which weights are
            collected.
        every: Number of epochs or steps between two collections. Defaults to
            `1`.
        unit: `"epoch"` collects at the end of epochs. `"step"` collects after
            updates of the weights, counted from the beginning of
            `start_epoch`. With `compile(steps_per_execution=k)`, Keras calls
            the callback only once in `k` steps. The callback then collects at
            the first call after a step is due. Defaults to `"epoch"`.
        replace_weights: Whether the model holds the average after training.
            Defaults to `False`.

    Attributes:
        num_collected: Number of collections so far.

    Example:

    ```python
    swa = keras_bdl.SWA(start_epoch=1)
    model.fit(train, epochs=3, callbacks=[swa])
    keras_bdl.predict(model, x_test, swa.posterior, batch_norm_data=train)
    ```

    Reference:
        - [Izmailov et al., 2018](https://arxiv.org/abs/1803.05407)
    """

    _settings = (*WeightCollector._settings, "replace_weights")

    def __init__(
        self,
        start_epoch: int,
        *,
        every: int = 1,
        unit: str = "epoch",
        replace_weights: bool = False,
    ) -> None:
        super().__init__(start_epoch, every, unit)
        self.replace_weights = check_bool("replace_weights", replace_weights)

    def on_train_begin(self, logs: dict | None = None) -> None:
        """Also refuses `replace_weights` if standard deviations are learned."""
        super().on_train_begin(logs)
        owner = posterior_owner(self.model)
        if self.replace_weights and owner is not None:
            raise ValueError(
                "`SWA(replace_weights=True)` changes only the weights, but "
                f"`{type(owner).__name__}` also learns standard deviations. "
                "Leave out `replace_weights` and use the `posterior` of the "
                "callback. "
                "Received: replace_weights=True"
            )

    @property
    def posterior(self) -> Gaussian:
        """A `Gaussian` without variance. Every sample is the average."""
        self._check_collected()
        mean = self._moments(self._mean)
        average = Gaussian(mean, names=self._structure.names)
        return average.beside(self._beside.trained, self._beside.frozen)

    def on_train_end(self, logs: dict | None = None) -> None:
        """Assigns the average to the model if `replace_weights` is set."""
        if not self.replace_weights:
            return
        if not self.num_collected:
            warnings.warn(
                "`SWA(replace_weights=True)` did not change the model, because "
                "training stopped before the first collection. "
                f"Received: start_epoch={self.start_epoch}, "
                f"every={self.every}, unit={self.unit!r}",
                stacklevel=2,
            )
            return
        variables = self.model.trainable_variables
        for variable, value in zip(
            variables, self.posterior.mean(), strict=True
        ):
            variable.assign(value)
        if batch_norm_layers(self.model):
            warnings.warn(
                "`SWA(replace_weights=True)` assigned the average to the "
                "model. Its BatchNorm statistics belong to other weights. "
                "Estimate them again with "
                "`keras_bdl.prediction.reestimate_batch_norm(model, x)`.",
                stacklevel=2,
            )


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

    A second `fit` adds to the weights collected in the first. Use a new
    callback for a new run or another model.

    Args:
        start_epoch: First epoch, counted from 0, in which weights are
            collected.
        every: Number of epochs or steps between two collections. Defaults to
            `1`.
        unit: `"epoch"` collects at the end of epochs. `"step"` collects after
            updates of the weights, counted from the beginning of
            `start_epoch`. With `compile(steps_per_execution=k)`, Keras calls
            the callback only once in `k` steps. The callback then collects at
            the first call after a step is due. Defaults to `"epoch"`.
        rank: Number of columns to keep, at least 2, or 0 for a diagonal
            covariance (for which the paper uses `scale=1`). Defaults to `20`.
        scale: Factor of the whole covariance. With 0, every sample is the
            mean. Defaults to `0.5`, the paper's formula.
        block: Whether the low-rank part is drawn independently for each
            variable. Defaults to `False`.
        deviation_dtype: Dtype of the columns: `"float32"`, or `"float16"` for
            half the memory. In float16, numbers below 6e-8 become zero.
            Defaults to `"float32"`.

    Attributes:
        num_collected: Number of collections so far.

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
        start_epoch: int,
        *,
        every: int = 1,
        unit: str = "epoch",
        rank: int = 20,
        scale: float = 0.5,
        block: bool = False,
        deviation_dtype: str = "float32",
    ) -> None:
        super().__init__(start_epoch, every, unit)
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
        return posterior.beside(self._beside.trained, self._beside.frozen)

    def get_state(self) -> dict[str, Any]:
        """Returns everything collected, for a checkpoint."""
        squares = self._squares
        return {
            **super().get_state(),
            "squares": squares and [s.copy() for s in squares],
            "columns": list(self._columns),
        }

    def set_state(self, state: dict[str, Any]) -> None:
        super().set_state(state)
        squares = state["squares"]
        self._squares = squares and [np.array(s) for s in squares]
        self._columns.clear()
        self._columns.extend(state["columns"])

    memory_advice = (
        'Lower `rank`, pass `deviation_dtype="float16"`, or freeze layers with '
        "`trainable=False`."
    )

    def _bytes_of_weight(self) -> Any:
        # The mean, the squares, and the columns of the latest collections.
        columns = min(self.rank, self._most_collections() or self.rank)
        size = np.dtype(self.deviation_dtype).itemsize
        return 2 * super()._bytes_of_weight() + columns * size

    def _collect(self) -> None:
        self._column: Any = None
        super()._collect()
        if self.num_collected > 1:
            self._columns.append(self._column)

    def _add(
        self, index: int, part: slice, before: np.ndarray, after: np.ndarray
    ) -> None:
        if self._squares is None:
            self._squares = self._zeros()
        if self._column is None:
            self._column = self._zeros(self.deviation_dtype)
        self._squares[index].reshape(-1)[part] += before * after
        self._column[index].reshape(-1)[part] = after  # (3)


def _copies(arrays: Any) -> Any:
    """Returns copies, because `_collect` changes its arrays in place."""
    return None if arrays is None else [np.array(a) for a in arrays]
