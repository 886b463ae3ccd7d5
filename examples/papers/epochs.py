"""Callbacks that act at the end of epochs."""

import time

import keras

import keras_bdl as bdl


class EpochClock(keras.callbacks.Callback):
    """Writes the seconds of each epoch to the logs."""

    def on_epoch_begin(self, epoch, logs=None):
        """Starts the clock."""
        self.start = time.perf_counter()

    def on_epoch_end(self, epoch, logs=None):
        """Writes the seconds to the logs."""
        logs["seconds"] = time.perf_counter() - self.start


class EpochBar(keras.callbacks.Callback):
    """One progress bar for a whole training."""

    def on_train_begin(self, logs=None):
        """Starts the bar."""
        self.bar = keras.utils.Progbar(
            self.params["epochs"], stateful_metrics=["loss"], unit_name="epoch"
        )

    def on_epoch_end(self, epoch, logs=None):
        """Advances the bar."""
        self.bar.update(epoch + 1, [("loss", float(logs["loss"]))])


class DrawnValidation(keras.callbacks.Callback):
    """Validates a network with active dropout, as in its predictions.

    `fit` computes `val_accuracy` and `val_log_loss` without dropout. This
    callback replaces them by averages over posterior samples.

    Args:
        data: Inputs and labels: a pair of arrays, or a data set.
        samples: Number of posterior samples.
    """

    def __init__(self, data, samples):
        super().__init__()
        self.data, self.samples = data, samples

    def on_epoch_end(self, epoch, logs=None):
        """Replaces the logs of the validation."""
        if "val_accuracy" not in logs:
            return
        pair = isinstance(self.data, tuple)
        prediction = bdl.predict(
            self.model,
            self.data[0] if pair else self.data,
            bdl.posteriors.MCDropout(),
            samples=self.samples,
            seed=epoch,
            options=bdl.prediction.PredictOptions(
                task="classification", from_logits=True
            ),
            verbose=0,
        )
        report = bdl.evaluate(prediction, self.data[1] if pair else None)
        logs["val_accuracy"] = report.accuracy
        logs["val_log_loss"] = report.nll


class PriorCrossEntropy(keras.callbacks.Callback):
    """Logs `-E log p(w) / N` of all variational layers, a part of their KL.

    Args:
        train_size: Number N of training images.
    """

    def __init__(self, train_size):
        super().__init__()
        self.train_size = train_size

    def on_epoch_end(self, epoch, logs=None):
        """Writes the value to the logs."""
        total = 0.0
        for layer in self.model.layers:
            for p in getattr(layer, "weight_posteriors", ()):
                log_prob = p.prior.expected_log_prob(p.distribution(), None)
                total -= float(keras.ops.sum(log_prob))
        logs["prior_cross_entropy"] = total / self.train_size
