"""A callback whose state outlives the process."""

import weakref

from keras_bdl.callbacks.fit_callback import FitCallback


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
