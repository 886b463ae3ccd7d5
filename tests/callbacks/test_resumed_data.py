"""A resumed run reads the same batches, or `Checkpoint` says that it cannot."""

import random
import types
import warnings

import keras
import numpy as np
import pytest
import tensorflow as tf

import keras_bdl as bdl
from keras_bdl.callbacks._resumed_data import OrderCheck
from tests.helpers import assert_equal

X = np.random.default_rng(0).normal(size=(20, 3)).astype("float32")
Y = X[:, :1]
EXAMPLES = tf.data.Dataset.from_tensor_slices((X, Y))
COUNTER = bdl.datasets.EpochCounter()


class Killed(Exception):
    pass


def kill(epoch, logs):
    if epoch == 1:
        raise Killed


def trained(process, directory, data, counters=(), killed=False):
    """Runs the command once, in a process that draws other seeds."""
    keras.utils.set_random_seed(1)
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
    random.seed(process)
    model.compile(bdl.ATMC(1e-2, dataset_size=20), "mse")
    callbacks = [*counters, bdl.callbacks.Checkpoint(directory)]
    if killed:
        dies = keras.callbacks.LambdaCallback(on_epoch_end=kill)
        callbacks.append(dies)  # after the checkpoint of the epoch
    try:
        model.fit(data, epochs=4, shuffle=False, verbose=0, callbacks=callbacks)
    except Killed:
        assert killed
    return [v.numpy() for v in (*model.variables, *model.optimizer.variables)]


@pytest.mark.parametrize("source", [(X, Y), EXAMPLES], ids=["arrays", "tf"])
def test_chain_resumed_with_an_epoch_counter_is_the_unbroken_chain(
    source, tmp_path
):
    def counted():
        epochs = bdl.datasets.EpochCounter()
        return epochs.batches(source, 8, seed=3), [epochs]

    whole = trained(1, tmp_path / "whole", *counted())
    trained(1, tmp_path / "killed", *counted(), killed=True)
    assert_equal(trained(2, tmp_path / "killed", *counted()), whole)


def test_chain_resumed_with_a_plain_shuffle_differs_and_warns(tmp_path):
    def shuffled():
        tf.random.set_seed(1)
        return EXAMPLES.shuffle(20, seed=3).batch(8)

    with pytest.warns(UserWarning, match="begins with its first order again"):
        whole = trained(1, tmp_path / "whole", shuffled())
    with pytest.warns(UserWarning, match=r"EpochCounter\(\)"):
        trained(1, tmp_path / "killed", shuffled(), killed=True)
    with pytest.warns(UserWarning, match=r"EpochCounter\(\)"):
        resumed = trained(2, tmp_path / "killed", shuffled())
    assert np.max(np.abs(resumed[0] - whole[0])) > 1e-4


def said(data, counters=(), in_one_pass=False):
    """Returns the warnings of the first two steps."""
    model = types.SimpleNamespace(train_function=lambda iterator: "logs")
    own = model.train_function
    params = {"epoch_counters": list(counters)}
    OrderCheck(model, params, in_one_pass)
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        assert model.train_function(iter(data)) == "logs"
        assert model.train_function(iter(data)) == "logs"
    assert model.train_function is own
    return [str(one.message) for one in found]


SHUFFLED = EXAMPLES.shuffle(20, seed=1)
FIXED = EXAMPLES.shuffle(20, seed=1, reshuffle_each_iteration=False)
EXACT = {
    "no shuffle": EXAMPLES.batch(4),
    "one order": FIXED.batch(4),
    "one order in memory": SHUFFLED.cache().batch(4).prefetch(1),
    "counted": COUNTER.batches((X, Y), 4, seed=0).map(lambda x, y: (x, y)),
}
INEXACT = {
    "shuffle": (SHUFFLED.batch(4).map(lambda *e: e).prefetch(1), "first order"),
    "zip": (tf.data.Dataset.zip(EXAMPLES, SHUFFLED).batch(4), "first order"),
    "after a cache": (EXAMPLES.cache().shuffle(20, seed=1).batch(4), "first"),
}


@pytest.mark.parametrize("name", EXACT)
def test_data_in_a_known_order_cause_no_warning(name):
    assert not said(EXACT[name], [COUNTER])


@pytest.mark.parametrize("name", INEXACT)
def test_shuffle_anywhere_in_the_pipeline_causes_one_warning(name):
    data, message = INEXACT[name]
    (only,) = said(data, [COUNTER])
    assert message in only


def test_a_seed_of_the_shuffle_is_needed():
    keras.utils.set_random_seed(1)
    # The global seed of the program is a seed, too.
    fixed = EXAMPLES.shuffle(20, reshuffle_each_iteration=False)
    assert not said(fixed.batch(4))
    tf.random.set_seed(None)
    for data in (EXAMPLES.shuffle(20, reshuffle_each_iteration=False),):
        assert "has no seed" in said(data.cache().batch(4))[0]
        assert "has no seed" in said(data.batch(4), in_one_pass=True)[0]


def test_one_pass_over_repeated_data_is_exact():
    assert not said(SHUFFLED.repeat().batch(4), in_one_pass=True)


def test_counter_that_is_no_callback_causes_a_warning():
    assert "not among the callbacks" in said(EXACT["counted"])[0]


def test_file_of_a_cache_holds_the_order(tmp_path):
    assert not said(SHUFFLED.cache(str(tmp_path / "data")).batch(4))


def test_replicas_are_checked_too(mirrored):
    for data, message in INEXACT.values():
        shared = mirrored.experimental_distribute_dataset(data)
        assert message in said(shared)[0]
