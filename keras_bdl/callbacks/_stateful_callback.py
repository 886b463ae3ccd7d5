"""Base classes of the callbacks of this package."""

import weakref
from typing import Any

import keras

from keras_bdl._data._dataset_size import compare_with_epoch
from keras_bdl.models._trainer import BayesianTrainer


class SkippedSteps:
    """Replaces a model's `train_function` to skip steps of a killed run.

    The first step of a resumed epoch runs, because Keras builds some objects in
    that step. `Checkpoint` then restores the saved state. The next steps only
    read their batches.

    Args:
        model: The model in training.
        unseen_by_epoch: Number of batches to read and skip before the resumed
            epoch begins.
        steps: Whether to skip also the first steps of the resumed epoch.
    """

    def __init__(self, model: keras.Model, unseen_by_epoch: int, steps: bool):
        self._model = model
        self._train_function = model.train_function
        self._ahead = unseen_by_epoch
        self._steps = steps
        self._logs = None
        model.train_function = self

    def undo(self) -> None:
        """Restores the model's own `train_function`."""
        self._model.train_function = self._train_function

    def __call__(self, iterator):
        """Reads the batches of one execution from `iterator`."""
        for _ in range(self._ahead):
            if next(iterator, None) is None:
                raise ValueError(
                    "`skip_seen_data=True` needs endless data. The given data "
                    "end before the step of the checkpoint. Repeat the data "
                    "with `dataset.repeat()`, or use `skip_seen_data=False`."
                )
        self._ahead = 0
        if not self._steps:
            self.undo()
            return self._train_function(iterator)
        if self._logs is None:
            self._logs = self._train_function(iterator)
        else:
            next(iterator)  # its `StopIteration` ends the epoch in Keras
            for _ in range(self._model.steps_per_execution - 1):
                # An execution at the end of an epoch may be shorter.
                if next(iterator, None) is None:
                    break
        return self._logs


def checked_steps_per_epoch(params: dict) -> int:
    """Returns `steps_per_epoch`, or raises an error if it was not given.

    Args:
        params: The parameters that `fit` gives to callbacks.
    """
    if params["steps"] is None:
        raise ValueError(
            "`skip_seen_data=True` needs `fit(steps_per_epoch=...)`. "
            "Received: steps_per_epoch=None"
        )
    return params["steps"]


class FitCallback(keras.callbacks.Callback):
    """Base of callbacks that can be pickled and that check `dataset_size`.

    The pickle holds the settings and everything collected. The pickle does not
    hold the model or other attributes of a running `fit`. During `fit`, the
    callback compares N, the `dataset_size`, with the data.
    """

    # Names of attributes that belong to a running `fit`. A subclass lists only
    # its own: `__getstate__` joins the names of all base classes.
    _of_fit: tuple[str, ...] = ("_model", "params")

    def __getstate__(self):
        names = {
            n for c in type(self).__mro__ for n in vars(c).get("_of_fit", ())
        }
        return {**vars(self), **dict.fromkeys(names & vars(self).keys())}

    def on_train_batch_end(self, batch, logs=None):
        """Compares N with the number of examples in the data."""
        self.compare_dataset_size(batch)

    def compare_dataset_size(self, batch: int) -> None:
        """Warns once in a `fit` if N differs from the size of the first epoch.

        A subclass with its own `on_train_batch_end` must call this method
        there. `fit` of a `keras_bdl.Model` makes this comparison itself, so
        this method warns only for other models.

        Args:
            batch: Index of the batch that has ended.
        """
        steps = self.params["steps"]
        if (
            "dataset_size_compared" in self.params
            or steps is None
            or batch + 1 < steps
            or isinstance(self.model.train_function, SkippedSteps)
        ):
            return
        # Keras passes one dictionary to all callbacks of a `fit`.
        self.params["dataset_size_compared"] = True
        if not isinstance(self.model, BayesianTrainer):
            compare_with_epoch(self.model, steps)


class StatefulCallback(FitCallback):
    """Base of callbacks whose state a `Checkpoint` saves and restores.

    Derive from this class if your own callback must survive a killed process.
    `Checkpoint` saves the result of `get_state` and passes it to `set_state`
    when the run is started again.

    Attributes:
        skipping: Whether Keras now reports steps that the killed run had
            already done. After these steps, `Checkpoint` calls `set_state`
            again, which undoes their changes.

    Example:

    ```python
    class CountSteps(keras_bdl.extend.StatefulCallback):
        def __init__(self):
            super().__init__()
            self.steps = 0

        def on_train_batch_end(self, batch, logs=None):
            self.steps += 1

        def get_state(self):
            return {"steps": self.steps}

        def set_state(self, state):
            self.steps = state["steps"]

    model.fit(x, y, callbacks=[CountSteps()], verbose=0)
    ```
    """

    skipping = False
    _of_fit: tuple[str, ...] = ("_trained",)

    def set_params(self, params):
        """Registers the callback for the `Checkpoint` of the same `fit`.

        Keras passes one dictionary, `params`, to all callbacks of a `fit`. A
        callback has no other way to find the other callbacks.
        """
        super().set_params(params)
        self.skipping = False
        known = params.setdefault("stateful_callbacks", [])
        if not any(callback is self for callback in known):
            known.append(self)

    def keep_to_one_model(self) -> None:
        """Raises an error if `fit` trains another model than before.

        Call this method in `on_train_begin`.
        """
        if self._trained is not None and self._trained() is not self.model:
            raise ValueError(
                f"`{type(self).__name__}` must be used with one model. Make a "
                "new callback for each model. Received: "
                f"model={self.model.name!r} after another model"
            )
        self._trained = weakref.ref(self.model)

    def refuse_frozen_model(self) -> None:
        """Raises an error if no weight is trainable.

        Call this method in `on_train_begin`.
        """
        if self.model.built and not self.model.trainable_variables:
            raise ValueError(
                f"`{type(self).__name__}` needs trainable weights. Set "
                "`trainable=True` on a layer before `compile`. "
                f"Received: model={self.model.name!r} without any"
            )

    _trained: weakref.ref | None = None

    def get_state(self) -> dict[str, Any]:
        """Returns the state as nested dictionaries of numbers and arrays."""
        raise NotImplementedError(
            f"`{type(self).__name__}` must implement `get_state`."
        )

    def check_state(self, state: dict[str, Any]) -> None:
        """Raises a `ValueError` if `set_state` would refuse the state.

        `Checkpoint` calls this method of all callbacks before it changes
        anything. The base class accepts every state.

        Args:
            state: Result of `get_state`, possibly from another process.
        """

    def set_state(self, state: dict[str, Any]) -> None:
        """Continues from a state that `get_state` returned.

        Args:
            state: Result of `get_state`, possibly from another process.
        """
        raise NotImplementedError(
            f"`{type(self).__name__}` must implement `set_state`."
        )
