"""Keeps the samples that a sampler visits."""

import contextlib
import os

import keras
import numpy as np

from keras_bdl.callbacks.stateful_callback import StatefulCallback
from keras_bdl.callbacks.weight_collector import check_integer
from keras_bdl.posteriors.ensemble import Ensemble
from keras_bdl.posteriors.structure import Structure
from keras_bdl.saving.state_file import read_state
from keras_bdl.saving.state_file import write_state


class SampleCollector(StatefulCallback):
    """Takes the weights as a sample at the end of every cycle.

    The samples are those of `keras_bdl.ATMC`, `SGNHT`, `SGHMC` or `SGLD`; with
    another optimizer they are snapshots and no posterior. Training itself is
    not changed. Steps are counted as updates of the weights: those that loss
    scaling skips do not count.

    Args:
        every: A schedule with `cycle_steps`, such as
            `keras_bdl.schedules.CyclicalCosine`: the last state of each of
            its cycles is taken. Or a number of epochs or steps, see `unit`.
        burn_in_epochs: Epochs at the begin of which nothing is taken.
            Defaults to `0`.
        max_samples: How many are kept, the latest ones. Defaults to `None`,
            all.
        directory: Where samples are kept, one file each, instead of in
            memory. Defaults to `None`, in memory.
        unit: `"epoch"` or `"step"`, what a number in `every` counts.
            Defaults to `"epoch"`.

    Example:

    ```python
    cycle = keras_bdl.schedules.CyclicalCosine(1e-3, cycle_steps=50 * 391)
    model.compile(keras_bdl.ATMC(cycle, dataset_size=50_000), loss=loss)
    samples = keras_bdl.callbacks.SampleCollector(cycle, burn_in_epochs=150)
    model.fit(train, epochs=1000, callbacks=[samples])
    keras_bdl.predict(model, x_test, posterior=samples.posterior)
    ```
    """

    def __init__(
        self,
        every,
        burn_in_epochs: int = 0,
        max_samples: int | None = None,
        directory: str | None = None,
        unit: str = "epoch",
    ):
        super().__init__()
        if unit not in ("epoch", "step"):
            raise ValueError(
                f'`unit` must be "epoch" or "step". Received: unit={unit!r}'
            )
        if hasattr(every, "cycle_steps"):
            every, unit = every.cycle_steps, "step"
        self.every = check_integer("every", every, 1)
        self.unit = unit
        self.burn_in_epochs = check_integer("burn_in_epochs", burn_in_epochs, 0)
        if max_samples is not None:
            max_samples = check_integer("max_samples", max_samples, 1)
        self.max_samples = max_samples
        self.directory = None if directory is None else os.fspath(directory)
        self._samples = {}  # iteration -> weights, or the file that has them
        self._names = None
        self._first_possible_batch = None

    @property
    def num_collected(self):
        """How many samples there are."""
        return len(self._samples)

    @property
    def posterior(self):
        """An `Ensemble` of the samples taken so far."""
        if not self._samples:
            raise RuntimeError(
                "`SampleCollector` has taken no sample. Train longer, or for "
                "shorter cycles or burn-in. Received: "
                f"every={self.every}, unit={self.unit!r}, "
                f"burn_in_epochs={self.burn_in_epochs}"
            )
        members = [self._read(sample) for sample in self._samples.values()]
        return Ensemble(members, self._names)

    def on_train_begin(self, logs=None):
        """Refuses a training that would miss the end of a cycle."""
        self._first_possible_batch = None
        epochs = self.params["epochs"]
        if epochs <= self.burn_in_epochs:
            raise ValueError(
                "`SampleCollector` would take nothing: `burn_in_epochs` must "
                "be less than the number of epochs. Received: "
                f"burn_in_epochs={self.burn_in_epochs}, epochs={epochs}"
            )
        at_once, steps = self.model.steps_per_execution, self.params["steps"]
        uneven = steps is not None and steps % at_once
        if self.unit == "step" and (self.every % at_once or uneven):
            raise ValueError(
                "`steps_per_execution` must divide the steps of a cycle and of "
                "an epoch, since Keras shows the weights only between "
                f"executions. Received: steps_per_execution={at_once}, "
                f"cycle of {self.every} steps, epoch of {steps} steps"
            )
        self.keep_to_one_model()
        if self.directory is not None:
            os.makedirs(self.directory, exist_ok=True)

    def on_epoch_begin(self, epoch, logs=None):
        """Finds out when the next cycle ends."""
        if self.unit == "step" and epoch >= self.burn_in_epochs:
            # The counter lies on the device, and reading it would wait for it.
            self._first_possible_batch = self._missing_steps() - 1

    def on_train_batch_end(self, batch, logs=None):
        """Takes a sample if a cycle ends here."""
        first = self._first_possible_batch
        if first is None or batch < first:
            return
        missing = self._missing_steps()
        if missing == self.every and self._iterations():
            self._collect()
        # Not exact where loss scaling skips steps: then it is asked again.
        self._first_possible_batch = batch + missing

    def on_epoch_end(self, epoch, logs=None):
        """Takes a sample if an epoch is due."""
        since = epoch + 1 - self.burn_in_epochs
        if self.unit == "epoch" and since > 0 and since % self.every == 0:
            self._collect()

    def get_state(self):
        """Returns all samples, or the files that have them."""
        return {
            "settings": [self.every, self.unit, self.burn_in_epochs],
            "iterations": list(self._samples),
            "samples": list(self._samples.values()),
            "names": self._names,
        }

    def check_state(self, state):
        """Refuses a state that was written with other settings."""
        ours = [self.every, self.unit, self.burn_in_epochs]
        if state["settings"] != ours:
            raise ValueError(
                "`SampleCollector` must have the settings with which its state "
                "was written: every, unit, burn_in_epochs = "
                f"{state['settings']}. Received: {ours}"
            )

    def set_state(self, state):
        """Goes on from what `get_state` returned."""
        self.check_state(state)
        self._samples = dict(
            zip(state["iterations"], state["samples"], strict=True)
        )
        self._names = state["names"]

    def _iterations(self):
        optimizer = self.model.optimizer
        while isinstance(optimizer, keras.optimizers.LossScaleOptimizer):
            optimizer = optimizer.inner_optimizer
        return int(optimizer.iterations.numpy())

    def _missing_steps(self):
        """Returns the steps to the end of the cycle, all of them at its end."""
        return self.every - self._iterations() % self.every

    def _collect(self):
        iteration, weights = self._iterations(), self.model.get_weights()
        self._names = Structure.of(self.model.weights).names
        if self.directory is None:
            self._samples[iteration] = [np.array(w) for w in weights]
        else:
            path = os.path.join(self.directory, f"sample_{iteration:09d}.bdl")
            write_state(path, {"weights": weights})
            self._samples[iteration] = path
        while self.max_samples and len(self._samples) > self.max_samples:
            oldest = next(iter(self._samples))
            dropped = self._samples.pop(oldest)
            if isinstance(dropped, str):
                # A killed run may have dropped it already.
                with contextlib.suppress(FileNotFoundError):
                    os.remove(dropped)

    def _read(self, sample):
        if isinstance(sample, str):
            return read_state(sample, lazy=True)["weights"]
        return sample
