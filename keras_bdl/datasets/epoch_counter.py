"""Tells a data pipeline which epoch it is in."""

import keras
import numpy as np
import tensorflow as tf


class EpochCounter(keras.callbacks.Callback):
    """Numbers the passes over a `tf.data.Dataset`.

    A `tf.data.Dataset` does not know how often it was read, and Keras begins
    a new pass for every epoch. This object holds the number of the next pass,
    and what depends on it, order and augmentation, is a function of
    (seed, epoch) alone.

    Given to `fit` as a callback, the number is Keras's own number of the
    epoch, also in a run that was killed and resumed, and whatever else has
    read the data in between. Without it, passes count from 0 in the order in
    which they begin, and a look at the first batch is a pass, too: every epoch
    still gets its own order and augmentation, but not the same ones in a
    resumed run.

    Attributes:
        next_epoch: The epoch that the next pass yields. Set it to read any
            epoch by hand.

    Example:

    ```python
    data = keras_bdl.datasets.load("cifar10")
    checkpoint = keras_bdl.callbacks.Checkpoint("run_1")
    model.fit(data.train, epochs=300, callbacks=[data.epochs, checkpoint])
    ```
    """

    def __init__(self):
        super().__init__()
        self.next_epoch = 0

    def on_epoch_begin(self, epoch, logs=None):
        """Takes the number of the epoch from Keras."""
        self.next_epoch = epoch

    def dataset(self):
        """Returns a data set of one element, the number of this pass."""
        # A Python call and not a variable: it needs no device, and is the
        # same object on every replica and after the graph was rewritten.
        return tf.data.Dataset.from_tensors(0).map(
            lambda _: tf.ensure_shape(
                tf.numpy_function(self._begin_pass, [], tf.int64), ()
            )
        )

    def _begin_pass(self):
        epoch = self.next_epoch
        self.next_epoch = epoch + 1
        return np.int64(epoch)
