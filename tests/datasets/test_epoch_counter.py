import keras
import numpy as np
import tensorflow as tf

from keras_bdl.datasets import EpochCounter


def epochs_seen(counter, callbacks, initial_epoch=0):
    """Fits a model whose loss is the number of the epoch in the data."""
    data = counter.dataset().map(
        lambda epoch: (
            tf.zeros((1, 1)),
            tf.reshape(tf.cast(epoch, tf.float32), (1, 1)),
        )
    )
    data = data.apply(tf.data.experimental.assert_cardinality(1))
    model = keras.Sequential([keras.layers.Dense(1, use_bias=False)])
    model.compile(keras.optimizers.SGD(0.0), loss="mean_absolute_error")
    history = model.fit(
        data,
        initial_epoch=initial_epoch,
        epochs=5,
        verbose=0,
        callbacks=callbacks,
    )
    return history.history["loss"]


def test_epochs_have_the_numbers_of_keras():
    counter = EpochCounter()
    assert epochs_seen(counter, [counter], initial_epoch=2) == [2, 3, 4]


def test_without_the_callback_passes_count_from_0():
    assert epochs_seen(EpochCounter(), []) == [0, 1, 2, 3, 4]


def test_reading_the_first_batch_is_a_pass():
    data = EpochCounter().dataset()
    next(iter(data))
    assert [int(e) for e in data] == [1]


def test_any_epoch_can_be_read_by_hand():
    counter = EpochCounter()
    data = counter.dataset()
    counter.next_epoch = 7
    np.testing.assert_array_equal([int(e) for e in data], [7])
    assert [int(e) for e in data] == [8]
