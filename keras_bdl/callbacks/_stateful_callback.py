"""Base classes of callbacks: what to pickle, to save and to keep equal.

`FitCallback` can be pickled, `StatefulCallback` survives a killed process, and
`CollectedWeights` keeps callbacks that collect weights to one model.
"""

import weakref
from typing import Any

import keras

from keras_bdl._data._dataset_size import compare_with_epoch
from keras_bdl._memory import check_memory
from keras_bdl._models._trainer import BayesianTrainer
from keras_bdl.posteriors._covered_weights import TrainedWeights
from keras_bdl.posteriors._covered_weights import check_adapters
from keras_bdl.posteriors._covered_weights import fingerprint


class FitCallback(keras.callbacks.Callback):
    """Base of callbacks that can be pickled and that check `dataset_size`.

    The pickle holds the settings and everything collected. The pickle does not
    hold the model or other attributes of a running `fit`. During `fit`, the
    callback compares N, the `dataset_size`, with the data.
    """

    # Names of attributes that belong to a running `fit`. A subclass lists only
    # its own: `__getstate__` joins the names of all base classes.
    _of_fit: tuple[str, ...] = ("_model", "params")

    def __getstate__(self) -> dict[str, Any]:
        names = {
            n for c in type(self).__mro__ for n in vars(c).get("_of_fit", ())
        }
        return {**vars(self), **dict.fromkeys(names & vars(self).keys())}

    def on_train_batch_end(self, batch: int, logs: dict | None = None) -> None:
        """Compares N with the number of examples in the data."""
        self.compare_dataset_size(batch)

    def compare_dataset_size(self, batch: int) -> None:
        """Warns once in a `fit` if N differs from the size of the first epoch.

        A subclass with its own `on_train_batch_end` must call this method
        there. `fit` of a `keras_bdl.Model` makes this comparison itself, so
        this method warns only for other models.
        """
        steps = self.params["steps"]
        if (
            "dataset_size_compared" in self.params
            or steps is None
            or batch + 1 < steps
            or getattr(self.model.train_function, "skips_steps", False)
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

    def set_params(self, params: dict[str, Any]) -> None:
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


class CollectedWeights:
    """The weights of a model that a callback collects.

    The callback has a method `needed_memory`, which returns the arguments of
    `check_memory` for all collections, or `None`.
    """

    def __init__(self) -> None:
        self.frozen: str | None = None  # a fingerprint
        self.trained: TrainedWeights | None = None
        self._is_memory_checked = False

    def begin(self, callback: Any, *, is_first: bool) -> None:
        """Raises an error if the model of a new `fit` cannot be collected."""
        callback.keep_to_one_model()
        callback.refuse_frozen_model()
        self._is_memory_checked = False
        if callback.model.built:  # `fit` may build the model later
            self._check(callback, is_first)

    def record(self, callback: Any, *, is_first: bool) -> None:
        """Raises an error if the weights do not belong to those collected."""
        if is_first:
            check_adapters(callback.model)
            self.frozen = fingerprint(callback.model)
            self.trained = TrainedWeights.of(callback.model)
        self._check(callback, is_first)

    def get_state(self) -> dict[str, Any]:
        """Returns what a checkpoint keeps of trained and frozen weights."""
        return {
            "frozen_weights": self.frozen,
            "trained_weights": self.trained and self.trained.get_state(),
        }

    def set_state(self, state: dict[str, Any]) -> None:
        """Continues from `get_state`."""
        self.frozen = state["frozen_weights"]
        self.trained = TrainedWeights.from_state(state.get("trained_weights"))

    def _check(self, callback: Any, is_first: bool) -> None:
        model = callback.model
        if not is_first and fingerprint(model) != self.frozen:
            raise ValueError(
                f"`{type(callback).__name__}` must collect the same weights "
                "all the time. Do not freeze or unfreeze layers between two "
                "`fit`s, or use a new callback. "
                f"Received: model={model.name!r} with other frozen weights"
            )
        needed = callback.needed_memory()
        if is_first and needed is not None and not self._is_memory_checked:
            check_memory(*needed)
            self._is_memory_checked = True
