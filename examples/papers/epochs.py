"""What is done at the ends of epochs."""

import time

import keras


class EpochClock(keras.callbacks.Callback):
    """Writes the seconds of each epoch to the logs."""

    def on_epoch_begin(self, epoch, logs=None):
        """Starts the clock."""
        self.start = time.perf_counter()

    def on_epoch_end(self, epoch, logs=None):
        """Writes what it says."""
        logs["seconds"] = time.perf_counter() - self.start


class EpochBar(keras.callbacks.Callback):
    """One progress bar for a whole training."""

    def on_train_begin(self, logs=None):
        """Begins the bar."""
        self.bar = keras.utils.Progbar(
            self.params["epochs"], stateful_metrics=["loss"], unit_name="epoch"
        )

    def on_epoch_end(self, epoch, logs=None):
        """Moves it on."""
        self.bar.update(epoch + 1, [("loss", float(logs["loss"]))])
