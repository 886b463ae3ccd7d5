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
def test_every_draw_is_the_average_and_the_model_holds_it_if_asked(replace):
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


def test_state_goes_on_where_it_was():
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


def test_nothing_collected_is_an_error_that_says_why():
    with pytest.raises(RuntimeError, match="at least 1 collection.*epoch=7"):
        SWA(start_epoch=7).posterior  # noqa: B018
