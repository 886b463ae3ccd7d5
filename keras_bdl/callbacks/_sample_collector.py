"""The callback `SampleCollector`, which keeps the samples of a sampler."""

import itertools
import math
import os
import warnings
from typing import Any

import numpy as np

from keras_bdl._aliases import Schedule
from keras_bdl._arguments import check_choice
from keras_bdl._arguments import check_count
from keras_bdl._data._dataset_size import guard_loss
from keras_bdl._keras import batches_of_step
from keras_bdl._keras import inner_optimizer
from keras_bdl._saving._storage_path import StoragePath
from keras_bdl.callbacks._chain_drift import warn_of_drift
from keras_bdl.callbacks._sample_store import SampleStore
from keras_bdl.callbacks._sample_store import put_old_samples_aside
from keras_bdl.callbacks._stateful_callback import CollectedWeights
from keras_bdl.callbacks._stateful_callback import StatefulCallback
from keras_bdl.optimizers._sampler import Sampler
from keras_bdl.posteriors._covered_weights import Structure
from keras_bdl.posteriors._covered_weights import unfrozen_weights
from keras_bdl.posteriors._ensemble import Ensemble


class SampleCollector(StatefulCallback):
    """Keeps the weights at the end of every cycle as a posterior sample.

    Use it with the samplers `keras_bdl.ATMC`, `SGNHT`, `SGHMC` and `SGLD`.
    With another optimizer, the samples are snapshots and form no posterior.
    The loss of a sampler must be the mean negative log-likelihood of the
    examples: a loss that sums over examples raises an error, also with a plain
    `keras.Model`. Training itself does not change. A step is an update of the
    weights: updates that loss scaling skips do not count.

    With `compile(steps_per_execution=k)`, Keras calls callbacks only after k
    steps, and at the end of an epoch. A sample is then the first such state
    after the end of its cycle. Cycles of whole epochs lose nothing. For other
    cycles, the callback warns once how many steps late a sample can be.

    After training, the callback warns if the chain still drifts. A chain drifts
    if the distance between the means of its two halves is about as large as the
    spread of the samples in a half. Such a chain has hardly left its start,
    and its samples form no posterior. The check needs at least 4 samples, and
    about 16 for a model with few weights.

    Args:
        every: A schedule with the attribute `cycle_steps`, such as
            `keras_bdl.schedules.CyclicalCosine`: one sample is taken at the
            end of each cycle. Or the length of a cycle, a number of epochs or
            steps, see `unit`.
        start_epoch: First epoch, counted from 0, in which samples are taken.
            The epochs before it are the burn-in. Defaults to `0`.
        max_samples: Largest number of samples to keep. The latest samples are
            kept. Defaults to `None`, all.
        directory: Directory for the samples, one file each, local or in a
            bucket (`"gs://bucket/samples"`). The posterior reads the files when
            it is used, and raises an error if `max_samples` has removed one of
            them. A new run moves the samples of an earlier run into a subfolder
            `old_1` and warns. A run that a `Checkpoint` resumes keeps its
            samples. With several workers, one worker writes, and all must be
            able to read the directory. Defaults to `None`: the samples stay in
            memory.
        unit: `"epoch"` or `"step"`, the unit of a number in `every`. Defaults
            to `"epoch"`.

    Example:

    ```python
    cycle = keras_bdl.schedules.CyclicalCosine(1e-3, cycle_steps=4)
    model.compile(keras_bdl.ATMC(cycle, dataset_size=64), loss=loss)
    samples = keras_bdl.callbacks.SampleCollector(cycle, start_epoch=1)
    model.fit(x, y, epochs=3, callbacks=[samples])
    keras_bdl.predict(model, x_test, samples.posterior)
    ```
    """

    def __init__(
        self,
        every: int | Schedule,
        *,
        start_epoch: int = 0,
        max_samples: int | None = None,
        directory: str | os.PathLike[str] | None = None,
        unit: str = "epoch",
    ) -> None:
        super().__init__()
        check_choice("unit", unit, ("epoch", "step"))
        if hasattr(every, "cycle_steps"):
            every, unit = every.cycle_steps, "step"
        self.every = check_count("every", every)
        self.unit = unit
        self.start_epoch = check_count("start_epoch", start_epoch, at_least=0)
        if max_samples is not None:
            check_count("max_samples", max_samples)
        self.max_samples = max_samples
        self.directory = (
            None if directory is None else str(StoragePath(directory))
        )
        self._samples = SampleStore()
        # Number of finished cycles, from the step counter.
        self._cycle: int | None = None
        self._names: list[str] | None = None
        self._first_possible_batch: int | None = None
        self._beside = CollectedWeights()
        self._warned_of_drift = self._warned_of_distance = False
        self._is_new = True  # until an epoch begins or a state is restored

    @property
    def num_collected(self) -> int:
        """Number of samples that the callback holds."""
        return len(self._samples)

    @property
    def posterior(self) -> Ensemble:
        """An `Ensemble` of the samples taken so far."""
        if not self._samples:
            raise RuntimeError(
                "`SampleCollector` has taken no sample. Train longer, use "
                "shorter cycles or lower `start_epoch`. Received: "
                f"every={self.every}, unit={self.unit!r}, "
                f"start_epoch={self.start_epoch}"
            )
        return self._ensemble(self._samples)

    def _ensemble(self, samples: Any) -> Any:
        ensemble = Ensemble(
            list(samples),
            names=self._names,
            # Without frozen weights, a sample has all weights.
            covers_frozen=self._beside.frozen is None,
        )
        return ensemble.beside(self._beside.trained, self._beside.frozen)

    def on_train_begin(self, logs: dict | None = None) -> None:
        """Checks that training can take samples at the ends of cycles."""
        # `Checkpoint` restores `_cycle` of a killed run after this call.
        self._first_possible_batch = self._cycle = None
        self._check_length()
        self._check_executions()
        self._beside.begin(self, is_first=not self._samples)
        guard_loss(self.model, [inner_optimizer(self.model)])
        if self.directory is not None:
            StoragePath(self.directory).mkdir(parents=True, exist_ok=True)

    def on_epoch_begin(self, epoch: int, logs: dict | None = None) -> None:
        """Moves old samples into a subfolder. Computes when the cycle ends."""
        if self._is_new and self.directory is not None:
            strategy = self.model.distribute_strategy
            put_old_samples_aside(self.directory, strategy)
        self._is_new = False
        if self.unit == "epoch" or epoch < self.start_epoch:
            return
        iterations = self._iterations()
        if self._cycle is None:
            self._cycle = iterations // self.every
        # Reading the counter in every step would wait for the device.
        self._first_possible_batch = self._missing(iterations) - 1

    def on_train_batch_end(self, batch: int, logs: dict | None = None) -> None:
        """Takes a sample if a cycle ended. Compares N with the data."""
        self.compare_dataset_size(batch)
        first = self._first_possible_batch
        if self.skipping or first is None or batch < first:
            return
        iterations = self._iterations()
        if self._cycle is None or iterations // self.every > self._cycle:
            self._cycle = iterations // self.every
            self._collect()
        # If loss scaling skips steps, the cycle ends later than this batch. The
        # next call checks again.
        self._first_possible_batch = batch + self._missing(iterations)

    def on_epoch_end(self, epoch: int, logs: dict | None = None) -> None:
        """Takes a sample if the settings select this epoch."""
        since = epoch + 1 - self.start_epoch
        if self.unit == "epoch" and since > 0 and since % self.every == 0:
            self._collect()

    def on_train_end(self, logs: dict | None = None) -> None:
        """Deletes files of dropped samples. Warns of a chain that drifts."""
        self._samples.delete_safe_files(self.model)
        is_chain = isinstance(inner_optimizer(self.model), Sampler)
        if self._warned_of_drift or not is_chain:
            return
        trained = [v.trainable for v in unfrozen_weights(self.model)]
        self._warned_of_drift = warn_of_drift(
            len(self._samples),
            lambda i: itertools.compress(self._samples[i], trained),
        )

    def get_state(self) -> dict[str, Any]:
        """Returns all samples, or the paths of their files."""
        return {
            "settings": [self.every, self.unit, self.start_epoch],
            **self._samples.get_state(self.model),
            "cycle": self._cycle,
            "names": self._names,
            **self._beside.get_state(),
        }

    def check_state(self, state: dict[str, Any]) -> None:
        ours = [self.every, self.unit, self.start_epoch]
        if state["settings"] != ours:
            raise ValueError(
                "`SampleCollector` must have the settings of its saved state: "
                f"every, unit, start_epoch = {state['settings']}. Delete the "
                "checkpoint directory or use these settings. "
                f"Received: {ours}"
            )

    def set_state(self, state: dict[str, Any]) -> None:
        self.check_state(state)
        self._is_new = False
        self._samples.set_state(state)
        self._cycle = state["cycle"]
        if self._first_possible_batch is not None:
            self._first_possible_batch = 0  # the run resumes within an epoch
        self._names = state["names"]
        self._beside.set_state(state)

    def _check_length(self) -> None:
        """Raises an error for a `fit` in which no cycle ends."""
        epochs, steps = self.params["epochs"], self.params["steps"]
        self._most = self.max_samples
        if self._samples or (self.unit == "step" and steps is None):
            return
        if self.unit == "epoch":
            most = (epochs - self.start_epoch) // self.every
        else:
            batches = self.every * batches_of_step(self.model)
            ended = [e * steps // batches for e in (self.start_epoch, epochs)]
            most = ended[1] - ended[0]
        if most > 0:
            self._most = min(most, self.max_samples or most)
            return
        raise ValueError(
            "`SampleCollector` would take nothing. `start_epoch` must be less "
            "than the number of epochs, and a cycle must end in the epochs "
            "that remain. Train longer or use shorter cycles. "
            f"Received: start_epoch={self.start_epoch}, epochs={epochs}, "
            f"every={self.every}, unit={self.unit!r}, steps={steps}"
        )

    def _check_executions(self) -> None:
        """Raises an error or warns if executions end later than cycles."""
        at_once, steps = self.model.steps_per_execution, self.params["steps"]
        if at_once == 1 or self.unit == "epoch":
            return
        each = self.every * batches_of_step(self.model)
        if steps is None:  # an epoch may begin anywhere in a cycle
            late, is_shared = at_once - 1, each < at_once
        else:
            first = self.start_epoch * steps // each + 1
            last = self.params["epochs"] * steps // each
            ends = each * np.arange(first, last + 1)
            # The last execution of an epoch ends with the epoch.
            waits = np.minimum(-(ends % steps) % at_once, -ends % steps)
            late = max(waits, default=0)
            is_shared = np.any(np.diff(ends + waits) == 0)
        given = (
            f"Received: steps_per_execution={at_once}, cycle of {self.every} "
            f"steps, epoch of {steps} steps"
        )
        if is_shared:
            raise ValueError(
                "`steps_per_execution` must be at most the number of steps in "
                "a cycle. Keras calls callbacks only between executions, so "
                "two cycles that end in one execution would share a sample. "
                f"{given}"
            )
        if late and not self._warned_of_distance:
            self._warned_of_distance = True
            warnings.warn(
                f"`SampleCollector` takes samples up to {late} steps after the "
                "end of a cycle, because Keras calls callbacks only between "
                "executions. Let cycles end with epochs, or choose a "
                "`steps_per_execution` that divides the steps of a cycle and "
                f"of an epoch. {given}",
                stacklevel=2,
            )

    def _iterations(self) -> int:
        return int(self.model.optimizer.iterations.numpy())

    def _missing(self, iterations: int) -> int:
        """Returns the number of steps until a cycle ends, at least one."""
        return self.every - iterations % self.every

    def needed_memory(self) -> tuple[str, int, str] | None:
        """Returns the size of all samples, if it is known."""
        if self.directory is not None or self._most is None:
            return None
        each = sum(
            math.prod(v.shape) * np.dtype(v.dtype).itemsize
            for v in unfrozen_weights(self.model)
        )
        return (
            f"The samples of `SampleCollector` ({self._most} of "
            f"{each:,} bytes)",
            self._most * each,
            "Give a `directory` for them, or a smaller `max_samples`.",
        )

    def _collect(self) -> None:
        self._beside.record(self, is_first=not self._samples)
        self._names = Structure.of(unfrozen_weights(self.model)).names
        self._samples.take(
            self.model, directory=self.directory, max_samples=self.max_samples
        )
