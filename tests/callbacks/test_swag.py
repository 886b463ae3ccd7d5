import warnings

import keras
import numpy as np
import pytest

from keras_bdl._saving._state_file import read_state
from keras_bdl._saving._state_file import write_state
from keras_bdl.callbacks import SWA
from keras_bdl.callbacks import SWAG
from keras_bdl.callbacks import _swag
from tests.callbacks.paths import Follow
from tests.callbacks.paths import Record
from tests.callbacks.paths import X
from tests.callbacks.paths import Y
from tests.callbacks.paths import network
from tests.callbacks.paths import path
from tests.callbacks.paths import weights_of


def fit(model, *callbacks, epochs, **kwargs):
    return model.fit(
        X, Y, 4, epochs=epochs, callbacks=callbacks, verbose=0, **kwargs
    )


def transcription(collected, rank):
    """SWAG in NumPy, for the weights of one variable."""
    mean = np.zeros_like(collected[0], "float64")
    columns = []
    for n, w in enumerate(np.asarray(collected, "float64"), start=1):
        mean = ((n - 1) * mean + w) / n
        columns.append(w - mean)
    columns = columns[1:]  # the first one is zero
    return mean, np.var(np.float64(collected), axis=0), columns[-rank:]


def assert_posterior(posterior, collected, rank, rtol=1e-6):
    state = posterior.get_state()
    for i, visited in enumerate(zip(*collected, strict=True)):
        mean, variance, columns = transcription(visited, rank)
        np.testing.assert_allclose(state["mean"][i], mean, rtol)
        np.testing.assert_allclose(state["variance"][i], variance, rtol)
        assert state["deviations"][i].shape[0] == len(columns)
        np.testing.assert_allclose(
            state["deviations"][i], columns, rtol, atol=1e-7
        )


def assert_same_posterior(one, other):
    for key in ("mean", "variance", "deviations"):
        for a, b in zip(
            one.get_state()[key], other.get_state()[key], strict=True
        ):
            np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize(
    ("every", "rank", "collected", "part"),
    [(1, 3, range(2, 9), None), (2, 20, [2, 4, 6, 8], 2)],
)
def test_moments_equal_those_of_the_weights_visited(
    every, rank, collected, part, monkeypatch
):
    if part:  # the kernel is then larger than one part
        monkeypatch.setattr(_swag, "_PART", part)
    record = Record()
    swag = SWAG(start_epoch=2, rank=rank, every=every)
    fit(network(), record, swag, epochs=9)
    visited = [record.epochs[i] for i in collected]
    assert swag.num_collected == len(visited)
    assert_posterior(swag.posterior, visited, rank)


def test_large_weights_with_a_small_spread_keep_their_precision():
    visited = path(8, center=1e4, spread=1e-2)
    swag = SWAG(start_epoch=0, rank=4)
    fit(network(), Follow(visited), swag, epochs=8)
    assert_posterior(swag.posterior, visited, 4)


def test_training_does_not_change():
    plain, collected = network(optimizer="adam"), network(optimizer="adam")
    fit(plain, epochs=3)
    fit(collected, SWAG(start_epoch=0, rank=2), epochs=3)
    for a, b in zip(weights_of(plain), weights_of(collected), strict=True):
        np.testing.assert_array_equal(a, b)


def test_steps_are_collected_when_keras_shows_the_weights():
    # 8 steps an epoch, shown in pairs. After step 8 each third is due: 11,
    # 14, 17, 20, 23.
    record = Record()
    swag = SWAG(start_epoch=1, rank=2, every=3, unit="step")
    model = network(steps_per_execution=2)
    fit(model, record, swag, epochs=3)
    visited = [record.steps[step] for step in (12, 14, 18, 20, 24)]
    assert_posterior(swag.posterior, visited, 2)


def test_every_fit_counts_steps_from_zero():
    model, swag = network(), SWAG(1, rank=0, every=3, unit="step")
    visited = []
    for _ in range(2):  # 8 steps an epoch: at 11 and 14
        model.compile("sgd", "mse")  # iterations begin at 0
        record = Record()
        fit(model, record, swag, epochs=2)
        visited += [record.steps[step] for step in (11, 14)]
    assert swag.num_collected == 4
    for mean, *weights in zip(swag.posterior.mean(), *visited, strict=True):
        np.testing.assert_allclose(mean, np.mean(weights, axis=0), rtol=1e-6)


def test_steps_skipped_by_loss_scaling_do_not_count():
    optimizer = keras.optimizers.LossScaleOptimizer(
        keras.optimizers.SGD(1e-3), initial_scale=2.0**127
    )
    record = Record()
    swag = SWAG(start_epoch=0, rank=2, every=2, unit="step")
    model = network(optimizer=optimizer, jit_compile=False)
    fit(model, record, swag, epochs=3)
    steps = int(optimizer.inner_optimizer.iterations)
    assert 6 < steps < 24
    assert_posterior(
        swag.posterior, [record.steps[s] for s in range(2, steps + 1, 2)], 2
    )


def test_rank_zero_has_no_columns():
    swag = SWAG(start_epoch=0, rank=0, scale=1.0)
    visited = path(2)
    fit(network(), Follow(visited), swag, epochs=2)
    assert swag.posterior.rank == 0
    np.testing.assert_allclose(
        swag.posterior.get_state()["variance"][0],
        np.var([w[0] for w in visited], axis=0),
        rtol=1e-6,
    )


def test_columns_in_half_precision_and_options_reach_the_posterior():
    swag = SWAG(
        start_epoch=0,
        rank=2,
        scale=0.25,
        block=True,
        deviation_dtype="float16",
    )
    fit(network(), Follow(path(3)), swag, epochs=3)
    state = swag.posterior.get_state()
    assert state["deviations"][0].dtype == "float16"
    assert state["scale"] == 0.25 and state["block"] is True
    expected = transcription([w[0] for w in path(3)], 2)[2]
    np.testing.assert_allclose(state["deviations"][0], expected, rtol=1e-3)


@pytest.mark.parametrize(
    ("unit", "cut"), [("epoch", 5), ("step", 1), ("step", 4)]
)
def test_state_continues_the_collection(unit, cut, tmp_path):
    options = {"start_epoch": 2, "rank": 2, "every": 3 if unit == "step" else 1}
    whole = SWAG(unit=unit, **options)
    fit(network(), whole, epochs=6)

    model = network()
    first = SWAG(unit=unit, **options)
    if cut > 2:
        fit(model, first, epochs=cut)
    else:
        fit(model, epochs=cut)
    write_state(tmp_path / "a", first.get_state())
    second = SWAG(unit=unit, **options)
    second.set_state(read_state(tmp_path / "a"))
    fit(model, second, epochs=6, initial_epoch=cut)
    assert second.num_collected == whole.num_collected
    assert_same_posterior(second.posterior, whole.posterior)


def test_a_posterior_does_not_change_when_training_goes_on():
    swag = SWAG(start_epoch=0, rank=2)
    model = network()
    fit(model, swag, epochs=4)
    posterior, state = swag.posterior, swag.get_state()
    drawn = posterior.sample(0)
    fit(model, swag, epochs=6, initial_epoch=4)
    np.testing.assert_array_equal(posterior.sample(0)[0], drawn[0])
    swag.set_state(state)
    assert_same_posterior(swag.posterior, posterior)


def test_replicas_are_collected_as_one(mirrored):
    with mirrored.scope():
        model = network()
    record = Record()
    swag = SWAG(start_epoch=0, rank=2)
    fit(model, record, swag, epochs=3)
    assert_posterior(swag.posterior, record.epochs, 2)


def test_state_of_another_model_raises_an_error_in_the_next_fit():
    swag, again = SWAG(start_epoch=0, rank=2), SWAG(start_epoch=0, rank=2)
    fit(network(), swag, epochs=3)
    again.set_state(swag.get_state())
    other = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)])
    other.compile("sgd", "mse")
    with pytest.raises(ValueError, match=r"Variable 0.*\(3, 1\).*\(3, 2\)"):
        fit(other, again, epochs=1)


def test_a_second_model_needs_a_new_callback():
    swag = SWAG(start_epoch=0, rank=2)
    model = network()
    fit(model, swag, epochs=3)
    fit(model, swag, epochs=1)
    with pytest.raises(ValueError, match="one model. Make a new callback"):
        fit(network(), swag, epochs=3)
    assert swag.num_collected == 4


SETTINGS = {
    "start_epoch": (1, 2),
    "every": (1, 2),
    "unit": ("step", "epoch"),
    "rank": (2, 3),
    "scale": (0.5, 1.0),
    "block": (False, True),
    "deviation_dtype": ("float32", "float16"),
}


@pytest.mark.parametrize("name", SETTINGS)
def test_state_with_another_setting_raises_before_any_change(name):
    mine = {key: values[0] for key, values in SETTINGS.items()}
    theirs = {**mine, name: SETTINGS[name][1]}
    saved, swag = SWAG(**theirs), SWAG(**mine)
    saved.num_collected = 7
    match = f"{name}={mine[name]!r}, in the state {name}={theirs[name]!r}"
    for refuse in (swag.check_state, swag.set_state):
        with pytest.raises(ValueError, match=f"old settings.*{match}"):
            refuse(saved.get_state())
    assert swag.num_collected == 0


@pytest.mark.parametrize(
    ("arguments", "epochs", "most"),
    [
        ({"start_epoch": 1, "rank": 2}, 3, 2),
        ({"start_epoch": 0, "rank": 2, "every": 2}, 4, 2),
        ({"start_epoch": 1, "rank": 0}, 2, 1),
        # 8 steps an epoch
        ({"start_epoch": 1, "every": 6, "unit": "step"}, 3, 2),
    ],
)
def test_fit_too_short_for_a_posterior_warns(arguments, epochs, most):
    swag = SWAG(**arguments)
    with pytest.warns(UserWarning, match=f"will have {most} at most"):
        fit(network(), swag, epochs=epochs)
    assert swag.num_collected == most


def test_collections_of_earlier_fits_count():
    swag = SWAG(start_epoch=0, rank=2, every=8, unit="step")
    model = network()
    for most in (1, 2):
        with pytest.warns(UserWarning, match=f"will have {most} at most"):
            fit(model, swag, epochs=1)
    fit(model, swag, epochs=1)
    assert swag.num_collected == 3


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        ({"start_epoch": -1}, "`start_epoch` must be an integer of at least 0"),
        ({"start_epoch": 0.5}, "`start_epoch` must be an integer"),
        ({"start_epoch": float("nan")}, "`start_epoch` must be.*=nan"),
        ({"rank": "a"}, "`rank` must be an integer.*rank='a'"),
        ({"rank": None}, "`rank` must be an integer.*rank=None"),
        ({"rank": -1}, "`rank` must be an integer of at least 0.*rank=-1"),
        ({"rank": 1}, "one column has no spread"),
        ({"every": 0}, "`every` must be a positive integer"),
        ({"unit": "batch"}, "`unit` must be .*Received: unit='batch'"),
        ({"scale": -0.5}, "`scale` must be"),
        ({"scale": float("nan")}, "`scale` must be"),
        ({"scale": "x"}, "`scale` must be a number.*scale='x'"),
        ({"block": "yes"}, "`block` must be `True` or.*block='yes'"),
        ({"deviation_dtype": "int8"}, "`deviation_dtype` must be"),
    ],
)
def test_wrong_arguments_are_refused(arguments, match):
    with pytest.raises(ValueError, match=match):
        SWAG(**{"start_epoch": 0, **arguments})


def test_training_that_ends_before_the_first_collection_raises_an_error():
    model = network()
    before = weights_of(model)
    with pytest.raises(ValueError, match="start_epoch=3, epochs=3"):
        fit(model, SWAG(start_epoch=3), epochs=3)
    np.testing.assert_array_equal(weights_of(model)[0], before[0])


def test_every_below_steps_per_execution_raises_an_error():
    model = network(steps_per_execution=4)
    with pytest.raises(ValueError, match="every=2, steps_per_execution=4"):
        fit(model, SWAG(start_epoch=0, every=2, unit="step"), epochs=1)


def test_error_for_too_few_collections_has_their_number():
    with pytest.raises(RuntimeError, match="num_collected=0 after 0 epochs"):
        SWAG(start_epoch=5).posterior  # noqa: B018
    swag = SWAG(start_epoch=2)
    with pytest.warns(UserWarning, match="needs 3 collections"):
        fit(network(), swag, epochs=4)
    match = "at least 3 collections.*num_collected=2 after 4 epochs, with start"
    with pytest.raises(RuntimeError, match=match):
        swag.posterior  # noqa: B018


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


def test_state_continues_the_average():
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
