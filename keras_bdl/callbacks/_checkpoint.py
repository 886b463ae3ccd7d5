"""The callback `Checkpoint`, which saves and resumes a run of `fit`."""

import os
import warnings
from collections.abc import Sequence
from typing import Any

import keras

from keras_bdl import _keras
from keras_bdl._arguments import check_bool
from keras_bdl._arguments import check_choice
from keras_bdl._arguments import check_count
from keras_bdl._saving._state_file import read_state
from keras_bdl._saving._state_file import write_state
from keras_bdl._saving._storage_path import StoragePath
from keras_bdl.callbacks._resumed_data import OrderCheck
from keras_bdl.callbacks._resumed_data import SkippedSteps
from keras_bdl.callbacks._resumed_data import checked_steps_per_epoch
from keras_bdl.callbacks._run_settings import check_callbacks
from keras_bdl.callbacks._run_settings import check_command
from keras_bdl.callbacks._run_settings import check_workers
from keras_bdl.callbacks._run_settings import command_of
from keras_bdl.callbacks._run_settings import saved_seeds
from keras_bdl.callbacks._stateful_callback import FitCallback
from keras_bdl.callbacks._stateful_callback import StatefulCallback
from keras_bdl.callbacks._training_state import check_training_state
from keras_bdl.callbacks._training_state import get_callback_states
from keras_bdl.callbacks._training_state import get_example_count
from keras_bdl.callbacks._training_state import get_history
from keras_bdl.callbacks._training_state import get_training_state
from keras_bdl.callbacks._training_state import set_callback_states
from keras_bdl.callbacks._training_state import set_example_count
from keras_bdl.callbacks._training_state import set_history
from keras_bdl.callbacks._training_state import set_training_state
from keras_bdl.distribute._workers import is_chief
from keras_bdl.distribute._workers import wait_for_all


class Checkpoint(FitCallback):
    """Saves the state of `fit`, so that a killed run can continue.

    If the process was killed, start the same program again: `fit` continues
    from the last checkpoint. One file holds the weights, the optimizer with its
    iterations, the metrics, epoch and step, the count of the examples, the
    state of every random seed generator, the history, and the state of every
    `StatefulCallback` of the same `fit`. `Checkpoint` replaces the file
    atomically, so the file is always complete.

    The resumed run ends with the same weights, logs and posterior as a run
    without interruption. The results are exactly the same if the order of the
    data is a function of seed and epoch:

    - arrays after `keras.utils.set_random_seed`,
    - `keras_bdl.datasets.EpochCounter().batches(...)` and the data of
      `keras_bdl.datasets.load`, with the counter as a callback,
    - datasets without shuffling or with a fixed order,
    - repeated data with `skip_seen_data`, from a shuffle with a seed.

    Any other `shuffle` of a `tf.data.Dataset` begins with its first order again
    in the new process. The result is then equally good but not identical, and
    `Checkpoint` warns in the first step.

    Rules for its use:

    - Put this callback last in the list of callbacks.
    - Give each `fit` its own directory. Delete the directory to start again.
    - With several workers, one worker writes the file and all workers read it.
    - A finished run that is started again does not train, unless `epochs` is
      larger than before.
    - A changed loss or hyper-parameter raises an error. One change only warns:
      if `learning_rate` is another number, the run keeps the learning rate of
      the checkpoint.
    - A `keras.callbacks.CSVLogger` needs `append=True`. Otherwise the resumed
      run overwrites the file of the logger. If the process was killed just
      after the end of an epoch, this epoch may appear twice in the file. The
      history has every epoch once.

    Args:
        directory: Directory of the file, `<directory>/latest.bdl`, local or in
            a bucket: `"gs://bucket/run_1"`. All workers must be able to read
            the directory.
        every: Number of epochs or steps between two checkpoints. Defaults to
            `1`.
        unit: `"epoch"` saves at the end of epochs, and always at the end of
            the last epoch. `"step"` saves within epochs, and also at the end of
            every epoch. Defaults to `"epoch"`.
        skip_seen_data: Whether one endless pass over the data spans all
            epochs, as with `dataset.repeat()` and `steps_per_epoch`. A resumed
            run then reads and skips all batches that the killed run has used.
            Defaults to `False`.
        callbacks: Callbacks of Keras whose attributes are saved too, such as
            `keras.callbacks.ReduceLROnPlateau`. List them in `fit` before this
            callback. `Checkpoint` saves their attributes that are numbers,
            strings or arrays, except constructor arguments. Defaults to `()`.

    Example:

    ```python
    swag = keras_bdl.SWAG(start_epoch=1, rank=2)
    checkpoint = keras_bdl.callbacks.Checkpoint("run_1")
    epochs = keras_bdl.datasets.EpochCounter()
    data = epochs.batches((x, y), 32, seed=0)
    model.fit(data, epochs=5, callbacks=[epochs, swag, checkpoint])
    ```
    """

    _of_fit = ("_order", "_restored", "_skipped", "_stateful")

    def __init__(
        self,
        directory: str | os.PathLike[str],
        *,
        every: int = 1,
        unit: str = "epoch",
        skip_seen_data: bool = False,
        callbacks: Sequence[keras.callbacks.Callback] = (),
    ) -> None:
        super().__init__()
        if not isinstance(directory, (str, os.PathLike)):
            raise ValueError(
                '`directory` must be a path, such as "run_1". '
                f"Received: directory={directory!r}"
            )
        folder = StoragePath(directory)
        self.directory = str(folder)
        self.every = check_count("every", every)
        self.unit = check_choice("unit", unit, ("epoch", "step"))
        self.skip_seen_data = check_bool("skip_seen_data", skip_seen_data)
        self.callbacks = list(callbacks)
        self.path = str(folder / "latest.bdl")
        self._command: Any = None
        self._epoch = 0
        self._order: Any = None
        # The epoch in which the pass over the data began.
        self._first_epoch: int | None = None
        self._last_saved_step = 0
        # The state of the file, until fully restored.
        self._restored: Any = None
        self._skipped: Any = None
        self._stateful: list[StatefulCallback] = []

    def set_params(self, params: dict[str, Any]) -> None:
        """Finds the stateful callbacks that come before this one."""
        super().set_params(params)
        self._stateful = list(params.get("stateful_callbacks", ()))
        # Keras passes the same dictionary to one callback after the other.
        late = [c for c in self.callbacks if c.params is not params]
        if late:
            raise ValueError(
                "`Checkpoint(callbacks=...)` must come after these callbacks. "
                "Put it last in the list of `fit`. Received: "
                f"{[type(c).__name__ for c in late]}, missing or after it"
            )

    def on_train_begin(self, logs: dict | None = None) -> None:
        """Restores the checkpoint in the directory, if present."""
        late = self.params.get("stateful_callbacks", [])[len(self._stateful) :]
        if late:
            raise ValueError(
                "`Checkpoint` must come after every callback whose state it "
                "saves. Put it last in the list. Received after it: "
                f"{[type(c).__name__ for c in late]}"
            )
        if isinstance(self.model.train_function, SkippedSteps):
            # An earlier `fit` raised an error while it skipped steps.
            self.model.train_function.undo()
        self._restored = self._skipped = self._first_epoch = None
        exists = StoragePath(self.path).exists()
        state = read_state(self.path) if exists else None
        with saved_seeds(self.model, state):
            self._order = OrderCheck(
                self.model, self.params, self.skip_seen_data
            )
            self._resume(state)

    def _resume(self, state: dict[str, Any] | None) -> None:
        # Read before other callbacks change the learning rate.
        self._command = command_of(self.model, self.params)
        strategy = self.model.distribute_strategy
        check_workers(self.directory, strategy, state)
        if state is None:
            StoragePath(self.directory).mkdir(parents=True, exist_ok=True)
            return
        if not self.model.built:
            raise ValueError(
                "`Checkpoint` can only resume a model that is built before "
                "`fit`. Give the model a `keras.Input`, or call it on one "
                f"batch. Received: model={self.model.name}"
            )
        seen = (state["epoch"] - state["first_epoch"]) * (
            checked_steps_per_epoch(self.params) if self.skip_seen_data else 0
        )
        skipped = seen + state["step"]
        check_command(self.directory, state["command"], self._command, skipped)
        self._command["settings"].update(state["command"].get("settings", {}))
        check_training_state(self.model, state["model"])
        check_callbacks(
            self.directory, self._stateful, self.callbacks, state["callbacks"]
        )
        # All checks have passed. From here on the model changes.
        self._restored = state
        self._restore(with_metrics=False)
        if self.params.get("verbose"):
            print(
                f"Resuming from {self.path} after epoch {state['epoch']}"
                + (f", step {state['step']}." if state["step"] else ".")
            )
        stopped = state["stopped"] and self.params["epochs"] <= state["epochs"]
        _keras.set_initial_epoch(
            self.model, self.params["epochs"] if stopped else state["epoch"]
        )
        self._first_epoch = state["first_epoch"]
        if skipped:
            self._skipped = SkippedSteps(self.model, seen, state["step"] > 0)
            self._set_skipping(state["step"] > 0)

    def on_epoch_begin(self, epoch: int, logs: dict | None = None) -> None:
        """Restores the history, which Keras emptied when `fit` began."""
        self._epoch = epoch
        if self._first_epoch is None:
            self._first_epoch = epoch
        self._last_saved_step = 0
        _keras.set_initial_epoch(self.model, None)
        if self._restored is not None:
            # The callbacks were restored before this epoch began, as in the
            # killed run. Their changes since then belong to the epoch.
            set_history(self.model, self._restored["history"])
            if not self._restored["step"]:
                self._restored = None

    def on_train_batch_end(self, batch: int, logs: dict | None = None) -> None:
        """Saves within an epoch if `unit` is `"step"`."""
        self.compare_dataset_size(batch)
        step = batch + 1
        if self._restored is not None:
            # Other callbacks have counted the skipped steps as real steps, so
            # their state is restored again after the last skipped step.
            if step >= self._restored["step"]:
                self._skipped.undo()
                self._set_skipping(False)
                self._restore(with_metrics=True)
                self._restored = None
                self._last_saved_step = step
        elif self.unit == "step" and step - self._last_saved_step >= self.every:
            self._last_saved_step = step
            self._save(self._epoch, step)

    def on_epoch_end(self, epoch: int, logs: dict | None = None) -> None:
        """Saves the epoch if `every` selects the epoch or if training ends."""
        if self._restored is not None:
            self._skipped.undo()
            raise ValueError(
                "A run that was killed within an epoch must continue with the "
                f"same data. Epoch {epoch} ended before step "
                f"{self._restored['step']}, the step of the checkpoint. Use "
                f"another directory, or delete `{self.directory}`."
            )
        stopped = bool(self.model.stop_training)
        done = epoch + 1
        ends = stopped or done == self.params["epochs"]
        if ends or self.unit == "step" or done % self.every == 0:
            self._save(done, 0, logs=logs, stopped=stopped)

    def on_train_end(self, logs: dict | None = None) -> None:
        """Saves an early stop. Warns if the run was complete before `fit`."""
        self._order.undo()
        _keras.set_initial_epoch(self.model, None)
        if self._restored is not None:
            self._restore_callbacks()
            self._restored = None
            warnings.warn(
                f"The training in `{self.directory}` is complete: no epoch was "
                "run, and the model holds its weights. Raise `epochs` to "
                "continue, or use another directory for another `fit`.",
                stacklevel=2,
            )
        elif self.model.stop_training:
            self._save(self._epoch + 1, 0, stopped=True)

    def _set_skipping(self, skipping: Any) -> None:
        for callback in self._stateful:
            callback.skipping = skipping

    def _save(
        self,
        epoch: int,
        step: Any,
        logs: dict | None = None,
        stopped: Any = False,
    ) -> None:
        state = {
            "first_epoch": self._first_epoch,
            "epoch": epoch,
            "step": step,
            "stopped": stopped,
            "epochs": self.params["epochs"],
            "command": self._command,
            "model": get_training_state(self.model),
            "history": get_history(self.model, epoch - 1, logs),
            "callbacks": get_callback_states(self._stateful, self.callbacks),
            "example_count": get_example_count(self.model),
        }
        strategy = self.model.distribute_strategy
        if is_chief(strategy):
            write_state(self.path, state)
        # Every worker waits until the file is complete.
        wait_for_all(strategy)

    def _restore(self, *, with_metrics: bool) -> None:
        state = self._restored
        set_training_state(
            self.model, state["model"], with_metrics=with_metrics
        )
        set_example_count(self.model, state.get("example_count", {}))
        self._restore_callbacks()

    def _restore_callbacks(self) -> None:
        set_callback_states(
            self._stateful, self.callbacks, self._restored["callbacks"]
        )
        set_history(self.model, self._restored["history"])
