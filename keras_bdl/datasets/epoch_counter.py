"""The callback `EpochCounter`, which counts passes over the data."""

from typing import Any

import keras
import numpy as np
import tensorflow as tf


class EpochCounter(keras.callbacks.Callback):
    """Counts the passes over a `tf.data.Dataset`.

    Pass `DataSplits.epochs` to `fit` as a callback, so that a resumed run reads
    the same data as a run without interruption. Order and augmentation of the
    data are functions of (seed, epoch). Keras begins a new pass for every
    epoch, but a `tf.data.Dataset` has no counter of its passes. This object
    holds the number of the next pass.

    As a callback of `fit`, the object takes the number of the epoch from
    Keras, also in a resumed run. Other passes over the data, such as those of
    a prediction, then do not change the number of an epoch. Without the
    callback, the object counts all passes from 0, in the order in which they
    begin. Reading only the first batch is also a pass. Every epoch still has
    its own order and augmentation, but a resumed run counts from 0 again.

    Attributes:
        next_epoch: Epoch number of the next pass. Set it to read a certain
            epoch.

    Example:

    ```python
    counter = keras_bdl.datasets.EpochCounter()
    numbers = counter.dataset()  # one element, the number of the pass
    assert [int(next(iter(numbers))) for _ in range(3)] == [0, 1, 2]
    ```
    """

    def __init__(self):
        super().__init__()
        self.next_epoch = 0

    def on_epoch_begin(self, epoch, logs=None):
        """Takes the number of the epoch from Keras."""
        self.next_epoch = epoch

    def dataset(self) -> Any:
        """Returns a dataset of one element, the number of the pass."""
        # Unlike a variable, a Python function needs no device. All replicas
        # and rewritten graphs call the same function.
        return tf.data.Dataset.from_tensors(0).map(
            lambda _: tf.ensure_shape(
                tf.numpy_function(self._begin_pass, [], tf.int64), ()
            )
        )

    def _begin_pass(self):
        epoch = self.next_epoch
        self.next_epoch = epoch + 1
        return np.int64(epoch)
