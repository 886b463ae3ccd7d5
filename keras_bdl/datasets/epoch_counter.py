"""The callback `EpochCounter`, which numbers passes over the data."""

from typing import Any

import keras
import numpy as np
import tensorflow as tf


class EpochCounter(keras.callbacks.Callback):
    """Numbers the passes over a `tf.data.Dataset`.

    Pass `DataSplits.epochs` to `fit` as a callback, so that a run that is
    killed and resumed sees the same data. A `tf.data.Dataset` has no counter
    of its passes, and Keras begins a new pass for every epoch. This object
    holds the number of the next pass. Order and augmentation are functions of
    (seed, epoch).

    As a callback of `fit`, the object takes the number of the epoch from
    Keras, also in a resumed run. Other readers of the data then have no
    effect. Without the callback, passes count from 0 in the order in which
    they begin, and reading the first batch is a pass, too. Every epoch still
    has its own order and augmentation, but a resumed run has other ones.

    Attributes:
        next_epoch: Number of the epoch of the next pass. Set it to read a
            certain epoch.

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
        # Unlike a variable, a Python call needs no device. It is the same
        # object on every replica and in a rewritten graph.
        return tf.data.Dataset.from_tensors(0).map(
            lambda _: tf.ensure_shape(
                tf.numpy_function(self._begin_pass, [], tf.int64), ()
            )
        )

    def _begin_pass(self):
        epoch = self.next_epoch
        self.next_epoch = epoch + 1
        return np.int64(epoch)
