import keras
import numpy as np
import pytest
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


X = np.arange(10.0, dtype="float32")
SOURCES = {
    "arrays": {"x": X, "y": (X, X)},
    "dataset": tf.data.Dataset.from_tensor_slices({"x": X, "y": (X, X)}),
}


def read(data):
    """Returns all rows, and the sizes of the batches."""
    batches = [{k: keras.tree.flatten(v) for k, v in b.items()} for b in data]
    for batch in batches:
        for part in batch["y"]:
            np.testing.assert_array_equal(part, batch["x"][0])
    rows = [batch["x"][0].numpy().tolist() for batch in batches]
    return sum(rows, []), [len(part) for part in rows]


@pytest.mark.parametrize("source", SOURCES)
def test_order_of_batches_is_a_function_of_seed_and_epoch(source):
    keras.utils.set_random_seed(1)
    counter = EpochCounter()
    data = counter.batches(SOURCES[source], 4, seed=5)
    epochs = [read(data) for _ in range(4)]
    for rows, sizes in epochs:
        assert sorted(rows) == X.tolist()
        assert sizes == [4, 4, 2]
    assert len({tuple(rows) for rows, _ in epochs}) == 4
    keras.utils.set_random_seed(2)
    again = EpochCounter()
    data = again.batches(SOURCES[source], 4, seed=5, drop_remainder=True)
    assert len(data) == 2
    for epoch in (3, 0, 2):
        again.next_epoch = epoch
        rows, sizes = read(data)
        assert rows == epochs[epoch][0][:8]
        assert sizes == [4, 4]
    other = EpochCounter().batches(SOURCES[source], 4, seed=6)
    assert read(other)[0] != epochs[0][0]


def test_replicas_share_the_order_of_one_device(mirrored):
    with mirrored.scope():
        counter = EpochCounter()
    data = counter.batches(X, 4, seed=5)
    alone = [b.numpy().tolist() for b in data]
    counter.next_epoch = 0
    shared = mirrored.experimental_distribute_dataset(data)
    parts = [mirrored.experimental_local_results(b) for b in shared]
    joined = [np.concatenate(p).tolist() for p in parts]
    assert joined == alone


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ((np.zeros(3), np.zeros(4)), "equally many rows"),
        (np.float32(1.0), "equally many rows"),
        (tf.data.Dataset.range(3).repeat(), "known, finite number"),
    ],
)
def test_data_without_a_number_of_examples_are_refused(data, message):
    with pytest.raises(ValueError, match=message):
        EpochCounter().batches(data, 2, seed=0)
