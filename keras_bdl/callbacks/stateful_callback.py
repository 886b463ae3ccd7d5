"""Base classes of callbacks whose state survives the process."""

import weakref

import keras

from keras_bdl.data.dataset_size import compare_with_epoch
from keras_bdl.models.bayesian_trainer import BayesianTrainer


class SkippedSteps:
    """Stands in for a model's `train_function` until it is `undo`ne.

    The first step of a resumed epoch is run in earnest, so that Keras builds
    all that it builds lazily; whoever made this object puts the true state in
    place afterwards. The next steps only read their batches.

    Args:
        model: The model in training.
        unseen_by_epoch: Batches to read before the epoch begins.
        steps: Whether steps of the epoch are to be skipped, too.
    """

    def __init__(self, model, unseen_by_epoch: int, steps: bool):
        self._model = model
        self._train_function = model.train_function
        self._ahead = unseen_by_epoch
        self._steps = steps
        self._logs = None
        model.train_function = self

    def undo(self):
        """Gives the model its own function back."""
        self._model.train_function = self._train_function

    def __call__(self, iterator):
        """Takes the batches of one execution from `iterator`."""
        for _ in range(self._ahead):
            if next(iterator, None) is None:
                raise ValueError(
                    "`skip_seen_data=True` is for data without an end, and "
                    "these end before the place where the killed run was. "
                    "Repeat them, or leave it out."
                )
        self._ahead = 0
        if not self._steps:
            self.undo()
            return self._train_function(iterator)
        if self._logs is None:
            self._logs = self._train_function(iterator)
        else:
            next(iterator)  # or the epoch is over, and Keras is told so
            for _ in range(self._model.steps_per_execution - 1):
                # An execution at the end of an epoch may be shorter.
                if next(iterator, None) is None:
                    break
        return self._logs


class FitCallback(keras.callbacks.Callback):
    """Base of callbacks that can be pickled, and compare N with the data.

    A pickled callback has what it collected, its settings, and no model: what
    belongs to a running `fit` is left behind.
    """

    # Attributes that belong to a running `fit`; those of subclasses as well.
    _of_fit = ("_model", "params")

    def __getstate__(self):
        names = {
            n for c in type(self).__mro__ for n in vars(c).get("_of_fit", ())
        }
        return {**vars(self), **dict.fromkeys(names & vars(self).keys())}

    def on_train_batch_end(self, batch, logs=None):
        """Compares N with the data."""
        self.compare_dataset_size(batch)

    def compare_dataset_size(self, batch):
        """Warns once a `fit` where N is not what the first epoch has shown.

        Call it in an `on_train_batch_end` that replaces that of this class. A
        `keras_bdl.Model` has compared N before.

        Args:
            batch: The batch that has ended.
        """
        steps = self.params["steps"]
        if (
            "dataset_size_compared" in self.params
            or steps is None
            or batch + 1 < steps
            or isinstance(self.model.train_function, SkippedSteps)
        ):
            return
        # Keras hands one dictionary to all callbacks of a `fit`.
        self.params["dataset_size_compared"] = True
        if not isinstance(self.model, BayesianTrainer):
            compare_with_epoch(self.model, steps)


class StatefulCallback(FitCallback):
    """Base of callbacks that have something to lose when training is killed.

    `Checkpoint` saves what `get_state` returns and gives it back to
    `set_state` when the run is started again. Derive from it to have the
    state of a callback of your own saved.

    Attributes:
        skipping: Whether the steps that Keras reports now are those that the
            killed run had done already. What happens in them is undone.
    """

    skipping = False
    _of_fit = ("_trained",)

    def set_params(self, params):
        """Makes the callback known to the `Checkpoint` of the same `fit`.

        Keras hands one dictionary to all callbacks of a `fit`, and no callback
        sees another by any other way.
        """
        super().set_params(params)
        self.skipping = False
        known = params.setdefault("stateful_callbacks", [])
        if not any(callback is self for callback in known):
            known.append(self)

    def keep_to_one_model(self):
        """Refuses to mix what two models did; for `on_train_begin`."""
        if self._trained is not None and self._trained() is not self.model:
            raise ValueError(
                f"`{type(self).__name__}` must be used with one model. Make a "
                "new callback for each. Received: "
                f"model={self.model.name!r}, after another one"
            )
        self._trained = weakref.ref(self.model)

    def refuse_frozen_model(self):
        """Refuses a model whose weights all stay; for `on_train_begin`."""
        if self.model.built and not self.model.trainable_variables:
            raise ValueError(
                f"`{type(self).__name__}` follows the trainable weights, and "
                "the model has none. Set `trainable=True` on a layer before "
                f"`compile`. Received: model={self.model.name!r}"
            )

    _trained = None

    def get_state(self):
        """Returns the state: nested dictionaries of numbers and arrays."""
        raise NotImplementedError(
            f"`{type(self).__name__}` must implement `get_state`."
        )

    def check_state(self, state):
        """Raises a `ValueError` if `set_state` would refuse the state.

        `Checkpoint` asks all callbacks before it changes anything. Accepts
        everything unless a subclass knows better.

        Args:
            state: What `get_state` returned, perhaps in another process.
        """

    def set_state(self, state):
        """Takes the state back.

        Args:
            state: What `get_state` returned, perhaps in another process.
        """
        raise NotImplementedError(
            f"`{type(self).__name__}` must implement `set_state`."
        )
