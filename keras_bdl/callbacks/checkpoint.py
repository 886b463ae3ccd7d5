"""Saves everything a killed run needs to end as if it had not been killed."""

import functools
import os
import warnings

from keras_bdl import _keras
from keras_bdl.callbacks.same_command import check_command
from keras_bdl.callbacks.same_command import check_workers
from keras_bdl.callbacks.same_command import command_of
from keras_bdl.callbacks.stateful_callback import FitCallback
from keras_bdl.callbacks.stateful_callback import SkippedSteps
from keras_bdl.callbacks.training_state import check_training_state
from keras_bdl.callbacks.training_state import get_history
from keras_bdl.callbacks.training_state import get_training_state
from keras_bdl.callbacks.training_state import plain_attributes
from keras_bdl.callbacks.training_state import set_history
from keras_bdl.callbacks.training_state import set_training_state
from keras_bdl.distribute.workers import is_chief
from keras_bdl.distribute.workers import wait_for_all
from keras_bdl.saving import read_state
from keras_bdl.saving import write_state


class Checkpoint(FitCallback):
    """Makes `fit` survive being killed at any moment.

    Start the same command again, and `fit` goes on where the last checkpoint
    was written. One file holds the weights, the optimizer with its
    iterations, the metrics, epoch and step, the state of every random seed
    generator, the history, and the state of every `StatefulCallback` of the
    same `fit`. It is replaced in one piece, so there is always a whole one.

    The run ends with the weights, logs and posterior that it would have had:
    exactly, if every epoch reads the data from the start, in an order that is
    a function of seed and epoch. That is so for arrays after
    `keras.utils.set_random_seed`, for data sets that are not shuffled or
    shuffled in one way always, and for those of `keras_bdl.datasets` with
    their `epochs` callback; and for repeated data with `skip_seen_data`. With
    a shuffle that changes from pass to pass the run is as good, but not the
    same.

    On several workers, one writes the file and all read it. Put it last in the
    list of callbacks, and give each `fit` a directory of its own. A finished
    run that is started again trains no further, unless `epochs` was raised; to
    begin afresh, delete the directory. Another loss or hyper-parameter is
    refused; of two learning rates that are numbers, that of the checkpoint is
    used, with a warning. The history has every epoch once. A
    `keras.callbacks.CSVLogger` begins its file anew in each start, unless it
    has `append=True`; then an epoch in whose last moment the run was killed is
    in it twice.

    Args:
        directory: Where the file is kept, `<directory>/latest.bdl`; a place
            that all workers see.
        every: `"epoch"`, or a number of steps after which it is written also
            within an epoch; at the end of every epoch in any case. Defaults
            to `"epoch"`.
        skip_seen_data: Whether one endless pass over the data spans all
            epochs, as with `dataset.repeat()` and `steps_per_epoch`. Then a
            resumed run reads, and skips, all it has seen. Defaults to `False`.
        callbacks: Callbacks of Keras with a memory of their own, such as
            `EarlyStopping`, which stand before this one and whose plain
            attributes, other than arguments, are to be saved as well.
            Defaults to `()`.

    Example:

    ```python
    swag = keras_bdl.SWAG(start_epoch=160)
    checkpoint = keras_bdl.callbacks.Checkpoint("run_1")
    model.fit(x, y, epochs=300, callbacks=[swag, checkpoint])
    ```
    """

    _of_fit = ("_restored", "_skipped", "_stateful")

    def __init__(
        self,
        directory: str,
        every="epoch",
        skip_seen_data: bool = False,
        callbacks=(),
    ):
        super().__init__()
        if every != "epoch" and (
            isinstance(every, bool) or not isinstance(every, int) or every < 1
        ):
            raise ValueError(
                '`every` must be "epoch" or a positive number of steps. '
                f"Received: every={every!r}"
            )
        self.directory = os.fspath(directory)
        self.every = every
        self.skip_seen_data = skip_seen_data
        self.callbacks = list(callbacks)
        self.path = os.path.join(self.directory, "latest.bdl")
        self._command = None
        self._epoch = 0
        self._first_epoch = None  # where the pass over the data began
        self._last_saved_step = 0
        self._restored = None  # what was read, until it is all in place
        self._skipped = None
        self._stateful = []

    def set_params(self, params):
        """Notes which stateful callbacks come before this one."""
        super().set_params(params)
        self._stateful = list(params.get("stateful_callbacks", ()))
        # Keras hands the same dictionary to one callback after the other.
        late = [c for c in self.callbacks if c.params is not params]
        if late:
            raise ValueError(
                "`Checkpoint(callbacks=...)` must come after these callbacks "
                "in the list of `fit`: put it last. Received: "
                f"{[type(c).__name__ for c in late]}, which are after it or "
                "not in the list"
            )

    def on_train_begin(self, logs=None):
        """Takes up the last checkpoint, if there is one."""
        late = self.params.get("stateful_callbacks", [])[len(self._stateful) :]
        if late:
            raise ValueError(
                "`Checkpoint` must come after every callback whose state it "
                "saves: put it last in the list. Received after it: "
                f"{[type(c).__name__ for c in late]}"
            )
        if isinstance(self.model.train_function, SkippedSteps):
            # Of a `fit` that an error ended while it was skipping.
            self.model.train_function.undo()
        self._restored = self._skipped = self._first_epoch = None
        # Here, since callbacks change the learning rate later.
        self._command = command_of(self.model, self.params)
        state = read_state(self.path) if os.path.exists(self.path) else None
        strategy = self.model.distribute_strategy
        check_workers(self.directory, strategy, state)
        if state is None:
            os.makedirs(self.directory, exist_ok=True)
            return
        if not self.model.built:
            raise ValueError(
                "`Checkpoint` can only resume a model that is built before "
                "`fit`. Give it a `keras.Input`, or call it on one batch. "
                f"Received: model={self.model.name}"
            )
        seen = (state["epoch"] - state["first_epoch"]) * self._steps_per_epoch()
        skipped = seen + state["step"]
        check_command(self.directory, state["command"], self._command, skipped)
        self._command["settings"].update(state["command"].get("settings", {}))
        check_training_state(self.model, state["model"])
        self._check_callbacks(state["callbacks"])
        # From here on the model changes.
        self._restored = state
        set_training_state(self.model, state["model"], with_metrics=False)
        self._restore_callbacks()
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

    def on_epoch_begin(self, epoch, logs=None):
        """Puts the history back, which Keras has emptied by now."""
        self._epoch = epoch
        if self._first_epoch is None:
            self._first_epoch = epoch
        self._last_saved_step = 0
        _keras.set_initial_epoch(self.model, None)
        if self._restored is not None:
            # The callbacks were restored before the epoch began for them, as
            # it would have in the killed run: what they have done since then
            # belongs to the epoch.
            set_history(self.model, self._restored["history"])
            if not self._restored["step"]:
                self._restored = None

    def on_train_batch_end(self, batch, logs=None):
        """Saves within an epoch, where that was asked for."""
        self.compare_dataset_size(batch)
        step = batch + 1
        if self._restored is not None:
            # Only now, since the callbacks before this one took the skipped
            # steps for real ones.
            if step >= self._restored["step"]:
                self._skipped.undo()
                self._set_skipping(False)
                set_training_state(
                    self.model, self._restored["model"], with_metrics=True
                )
                self._restore_callbacks()
                self._restored = None
                self._last_saved_step = step
        elif (
            self.every != "epoch" and step - self._last_saved_step >= self.every
        ):
            self._last_saved_step = step
            self._save(self._epoch, step)

    def on_epoch_end(self, epoch, logs=None):
        """Saves the finished epoch."""
        if self._restored is not None:
            self._skipped.undo()
            raise ValueError(
                "A run that was killed within an epoch must go on with the "
                f"same data: epoch {epoch} has ended before step "
                f"{self._restored['step']}, where it was killed. Use another "
                f"directory, or delete `{self.directory}`."
            )
        stopped = bool(self.model.stop_training)
        self._save(epoch + 1, 0, logs=logs, stopped=stopped)

    def on_train_end(self, logs=None):
        """Notes that training was stopped before its last epoch."""
        _keras.set_initial_epoch(self.model, None)
        if self._restored is not None:
            self._restore_callbacks()
            self._restored = None
            warnings.warn(
                f"The training in `{self.directory}` is complete: no epoch was "
                "run, and the model holds its weights. Raise `epochs` to go "
                "on, or use another directory for another `fit`.",
                stacklevel=2,
            )
        elif self.model.stop_training:
            self._save(self._epoch + 1, 0, stopped=True)

    def _set_skipping(self, skipping):
        for callback in self._stateful:
            callback.skipping = skipping

    def _steps_per_epoch(self):
        if not self.skip_seen_data:
            return 0
        if self.params["steps"] is None:
            raise ValueError(
                "`skip_seen_data=True` needs `fit(steps_per_epoch=...)`. "
                "Received: steps_per_epoch=None"
            )
        return self.params["steps"]

    def _save(self, epoch, step, logs=None, stopped=False):
        state = {
            "first_epoch": self._first_epoch,
            "epoch": epoch,
            "step": step,
            "stopped": stopped,
            "epochs": self.params["epochs"],
            "command": self._command,
            "model": get_training_state(self.model),
            "history": get_history(self.model, epoch - 1, logs),
            "callbacks": [
                {"class": type(c).__name__, "state": get()}
                for c, get, _ in self._memories()
            ],
        }
        strategy = self.model.distribute_strategy
        if is_chief(strategy):
            write_state(self.path, state)
        # Whoever goes on may rely on the file.
        wait_for_all(strategy)

    def _memories(self):
        """The callbacks to save, with how to read and write each one."""
        for callback in self._stateful:
            yield callback, callback.get_state, callback.set_state
        for callback in self.callbacks:
            yield (
                callback,
                functools.partial(plain_attributes, callback),
                vars(callback).update,
            )

    def _check_callbacks(self, saved):
        theirs = [one["class"] for one in saved]
        ours = [type(c).__name__ for c in (*self._stateful, *self.callbacks)]
        if ours != theirs:
            raise ValueError(
                "`fit` must be given the callbacks with which the checkpoint "
                f"in `{self.directory}` was written, in the same order: "
                f"{theirs}. Received: {ours}"
            )
        for callback, one in zip(self._stateful, saved, strict=False):
            callback.check_state(one["state"])

    def _restore_callbacks(self):
        for (_, _, set_state), one in zip(
            self._memories(), self._restored["callbacks"], strict=True
        ):
            set_state(one["state"])
        set_history(self.model, self._restored["history"])
