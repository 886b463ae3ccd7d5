import warnings

import keras
import numpy as np
import pytest

from keras_bdl.callbacks import SWA
from tests.callbacks.paths import Follow
from tests.callbacks.paths import X
from tests.callbacks.paths import Y
from tests.callbacks.paths import network
from tests.callbacks.paths import path
from tests.callbacks.paths import weights_of


def average(weights):
    return [np.mean(w, axis=0) for w in zip(*weights, strict=True)]


@pytest.mark.parametrize("replace", [False, True])
def test_every_sample_is_the_average_and_replace_weights_assigns_it(replace):
    swa = SWA(start_epoch=1, replace_weights=replace)
    model = network()
    visited = path(4)
    callbacks = [Follow(visited), swa]
    model.fit(X, Y, epochs=4, callbacks=callbacks, verbose=0)
    expected = average(visited[1:])
    for seed in range(2):
        for x, m in zip(swa.posterior.sample(seed), expected, strict=True):
            np.testing.assert_allclose(x, m, rtol=1e-6)
    left = expected if replace else visited[-1]
    for x, m in zip(weights_of(model), left, strict=True):
        np.testing.assert_allclose(x, m, rtol=1e-6)


def test_state_continues_the_collection():
    visited = path(5)
    swa, again = SWA(start_epoch=1), SWA(start_epoch=1)
    network().fit(X, Y, epochs=3, callbacks=[Follow(visited), swa], verbose=0)
    again.set_state(swa.get_state())
    network().fit(
        X,
        Y,
        epochs=5,
        initial_epoch=3,
        callbacks=[Follow(visited), again],
        verbose=0,
    )
    np.testing.assert_allclose(
        again.posterior.mean()[0], average(visited[1:])[0], rtol=1e-6
    )


def test_posterior_without_a_collection_raises_an_error():
    with pytest.raises(RuntimeError, match="at least 1 collection.*epoch=7"):
        SWA(start_epoch=7).posterior  # noqa: B018


def test_step_that_never_falls_due_raises_an_error():
    swa = SWA(start_epoch=1, every=5, unit="step")  # 4 steps an epoch
    with pytest.raises(ValueError, match="no step falls due.*steps=4"):
        network().fit(X, Y, 8, epochs=2, callbacks=[swa], verbose=0)


def test_replace_weights_without_a_collection_warns():
    model = network()
    swa = SWA(start_epoch=1, replace_weights=True)
    stop = keras.callbacks.LambdaCallback(
        on_epoch_end=lambda epoch, logs: setattr(model, "stop_training", True)
    )
    with pytest.warns(UserWarning, match="before the first collection"):
        model.fit(X, Y, epochs=2, callbacks=[swa, stop], verbose=0)


@pytest.mark.parametrize("trainable", [True, False])
def test_replaced_weights_warn_of_old_batch_norm_statistics(trainable, recwarn):
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
    model.add(keras.layers.BatchNormalization(trainable=trainable))
    model.compile("sgd", "mse")
    swa = SWA(start_epoch=0, replace_weights=True)
    warnings.simplefilter("always")
    model.fit(X, Y, epochs=2, callbacks=[swa], verbose=0)
    said = [str(w.message) for w in recwarn]
    assert len(said) == trainable
    if trainable:
        assert "keras_bdl.prediction.reestimate_batch_norm(model, x)" in said[0]


def test_state_with_another_setting_raises_an_error():
    state = SWA(start_epoch=0, replace_weights=True).get_state()
    with pytest.raises(ValueError, match="replace_weights=False, in the state"):
        SWA(start_epoch=0).set_state(state)
