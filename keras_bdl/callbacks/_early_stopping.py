"""Early stopping that restores the whole posterior."""

from typing import Any

import keras
import numpy as np

from keras_bdl.callbacks._stateful_callback import StatefulCallback
from keras_bdl.callbacks._training_state import plain_attributes


class EarlyStopping(keras.callbacks.EarlyStopping, StatefulCallback):
    """Stops when a metric no longer improves, and restores the posterior.

    Use it in place of `keras.callbacks.EarlyStopping`, with the same
    arguments, for `keras_bdl.VOGN`, `IVON`, `NoisyKFAC` and objectives. Their
    posterior has the weights as means, and the optimizer or objective holds
    the standard deviations. With `restore_best_weights=True`, this class
    restores means and standard deviations. The class of Keras restores only
    the means: the posterior would then have means of one epoch and standard
    deviations of another.

    `Checkpoint` saves the state of this callback.

    Attributes:
        restores_posterior: `True`. `fit` reads the attribute to distinguish
            this class from the one of Keras.

    Example:

    ```python
    stop = keras_bdl.callbacks.EarlyStopping(
        "val_loss", patience=1, restore_best_weights=True
    )
    model.fit(train, validation_data=val, epochs=3, callbacks=[stop])
    ```
    """

    restores_posterior = True
    _best_state = None

    def on_train_begin(self, logs: dict | None = None) -> None:
        """Discards the best epoch of an earlier `fit`."""
        super().on_train_begin(logs)
        self._best_state = None

    def on_epoch_end(self, epoch: int, logs: dict | None = None) -> None:
        """Copies optimizer and objective when Keras copies the weights."""
        weights = self.best_weights
        super().on_epoch_end(epoch, logs)
        if self.best_weights is not weights:
            self._best_state = [
                np.array(keras.ops.convert_to_numpy(v))
                for v in self._variables()
            ]

    def on_train_end(self, logs: dict | None = None) -> None:
        """Restores the best epoch if `restore_best_weights` is set."""
        super().on_train_end(logs)
        if self._best_state is None:
            return
        for variable, value in zip(
            self._variables(), self._best_state, strict=True
        ):
            variable.assign(value)

    def get_state(self) -> dict[str, Any]:
        """Returns the counters of Keras and the state of the best epoch."""
        return plain_attributes(self)

    def set_state(self, state: dict[str, Any]) -> None:
        for name, value in state.items():
            setattr(self, name, value)

    def _variables(self) -> list:
        """Returns the variables of the optimizer and of the objective."""
        objective = getattr(self.model, "objective", None)
        own = getattr(objective, "trainable_variables", [])
        return [*self.model.optimizer.variables, *own]
