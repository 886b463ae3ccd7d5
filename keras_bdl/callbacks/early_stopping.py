"""Early stopping for models whose posterior is not in their weights alone."""

import keras
import numpy as np

from keras_bdl.callbacks.stateful_callback import StatefulCallback
from keras_bdl.callbacks.training_state import plain_attributes


class EarlyStopping(keras.callbacks.EarlyStopping, StatefulCallback):
    """Stops when a metric has stopped improving, and restores the posterior.

    As `keras.callbacks.EarlyStopping`, with the same arguments. With
    `restore_best_weights=True`, the variables of the optimizer and of the
    objective go back to the best epoch together with the weights. They hold
    the deviations of `keras_bdl.VOGN`, `IVON`, `NoisyKFAC` and of the
    objectives: with the weights alone restored, the posterior would have the
    means of one epoch and the deviations of another.

    `Checkpoint` saves the memory of this callback without being asked.

    Attributes:
        restores_posterior: `True`, by which `fit` tells this class from that
            of Keras.

    Args:
        *args: As of `keras.callbacks.EarlyStopping`.
        **kwargs: As of `keras.callbacks.EarlyStopping`.

    Example:

    ```python
    stop = keras_bdl.callbacks.EarlyStopping(
        "val_loss", patience=10, restore_best_weights=True
    )
    model.fit(train, validation_data=val, epochs=500, callbacks=[stop])
    ```
    """

    restores_posterior = True

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self._best_state = None

    def on_train_begin(self, logs=None):
        """Forgets the best epoch of another training."""
        super().on_train_begin(logs)
        self._best_state = None

    def on_epoch_end(self, epoch, logs=None):
        """Keeps the whole state wherever Keras keeps the weights."""
        weights = self.best_weights
        super().on_epoch_end(epoch, logs)
        if self.best_weights is not weights:
            self._best_state = [
                np.array(keras.ops.convert_to_numpy(v))
                for v in self._variables()
            ]

    def on_train_end(self, logs=None):
        """Restores the best epoch, if that was asked for."""
        super().on_train_end(logs)
        if self._best_state is None:
            return
        for variable, value in zip(
            self._variables(), self._best_state, strict=True
        ):
            variable.assign(value)

    def get_state(self):
        """Returns the counters of Keras, and the best epoch."""
        return plain_attributes(self)

    def set_state(self, state):
        """Goes on from what `get_state` returned."""
        vars(self).update(state)

    def _variables(self):
        """Returns the variables of training that are no weights."""
        objective = getattr(self.model, "objective", None)
        own = getattr(objective, "trainable_variables", [])
        return [*self.model.optimizer.variables, *own]
