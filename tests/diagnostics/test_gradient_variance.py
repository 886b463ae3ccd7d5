import contextlib

import keras
import numpy as np
import pytest
import tensorflow as tf

import keras_bdl as bdl
from keras_bdl import layers
from keras_bdl._random._seeds import sequence
from keras_bdl.diagnostics import gradient_variance
from tests.helpers import assert_moment
from tests.helpers import cross_entropy

RNG = np.random.default_rng(0)
X = RNG.normal(size=(12, 4)).astype("float32")
Y = RNG.normal(size=12).astype("float32")


def measure(model, x=X, y=Y, **kwargs):
    return gradient_variance(model, (x, y), verbose=0, **kwargs)


def linear(kind, size=4, **compile):
    layer = getattr(layers, kind)(
        1,
        use_bias=False,
        rho_initializer=keras.initializers.RandomUniform(-1, 1, seed=1),
        name="linear",
    )
    model = keras.Sequential([keras.Input((size,)), layer])
    model.compile("sgd", "mse", **compile)
    return model


@pytest.mark.parametrize(
    ("kind", "jit_compile"), [("MeanFieldDense", True), ("RadialDense", False)]
)
def test_variance_of_a_linear_layer_follows_from_the_moments_of_its_noise(
    kind, jit_compile
):
    # g = a + B eps for the means, and g_i eps_i softplus'(rho_i) for rho_i.
    model = linear(kind, jit_compile=jit_compile)
    mean, rho = (w[:, 0].astype("float64") for w in model.get_weights())
    slope = 1 / (1 + np.exp(-rho))
    hessian = 2 * X.T @ X / len(X)
    a = hessian @ mean - 2 * X.T @ Y / len(X)
    b = hessian * np.log1p(np.exp(rho))
    if kind == "MeanFieldDense":
        second, fourth = 1, 1
    else:
        # E e_i^2 and E e_i^2 e_j^2 of e = sqrt(4) r u.
        second, fourth = 1, 3 * 4**2 / (4 * 6)
    squares, own = np.sum(b**2, 1), np.diag(b)
    of_rhos = second * a**2 + fourth * (squares + 2 * own**2)
    of_rhos -= (second * own) ** 2

    report = measure(model, samples=2000)
    for found, variance, gradient in (
        (report.means, second * squares, a),
        (report.rhos, slope**2 * of_rhos, slope * second * own),
    ):
        error = found["variance_error"]
        assert 0 < error < 0.2 * variance.mean()
        assert_moment(found["variance"], variance.mean(), error)
        signal = np.mean(gradient**2)
        error = 2 * np.sqrt(signal * variance.mean() / 2000)
        assert_moment(found["signal"], signal, error + 1e-3 * signal)
        snr = np.sqrt(found["signal"] / found["variance"])
        assert found["snr"] == pytest.approx(snr)


def test_standard_error_of_a_gaussian_gradient_has_its_closed_form():
    model = linear("MeanFieldDense", 1)
    report = measure(model, X[:, :1], samples=2000)
    relative = report.means["variance_error"] / report.means["variance"]
    # The squares have the kurtosis 15 of a chi-square.
    assert_moment(relative / np.sqrt(2 / 1999), 1.0, np.sqrt(14 / 4 / 1999))
    few = measure(model, X[:, :1], samples=2).means
    assert np.isnan(few["variance_error"]) and few["variance"] > 0


def images():
    return RNG.normal(size=(5, 6, 6, 2)).astype("f"), RNG.integers(0, 3, 5)


def network(calls=(), **kwargs):
    inputs = keras.Input((6, 6, 2))
    x = layers.MeanFieldConv2D(3, 3, activation="relu", name="conv")(inputs)
    x = keras.layers.Flatten()(x)
    for call in calls:
        x = call(x)
    x = layers.RadialDense(3, estimator="flipout", name="dense", **kwargs)(x)
    return keras.Model(inputs, x)


CROSS_ENTROPY = cross_entropy()


def test_report_equals_a_loop_over_the_samples():
    model, (x, y), gradients = network(), images(), []
    report = measure(model, x, y, samples=9, seed=3, loss=CROSS_ENTROPY)
    for i, name in enumerate(("conv", "dense")):
        layer = model.get_layer(name)
        key = sequence(3, i).generate_state(2, "uint32")
        layer.seed_generator.state.assign(key)
        layer.dataset_size.given = 1
    for _ in range(9):
        with tf.GradientTape() as tape:
            loss = CROSS_ENTROPY(y, model(x, training=True))
        gradients.append(tape.gradient(loss, model.trainable_variables))

    def of(places):
        """Returns the variance and the mean product of two gradients."""
        draws = [
            np.concatenate([np.ravel(g[i]) for i in places]) for g in gradients
        ]
        draws = np.array(draws, "float64")
        pairs = draws.sum(0) ** 2 - np.sum(draws**2, 0)
        return draws.var(0, ddof=1).mean(), pairs.mean() / (9 * 8)

    assert [v.name.split("_")[-1] for v in model.trainable_variables] == [
        "mean",
        "rho",
    ] * 4
    for found, places in (
        (report.means, range(0, 8, 2)),
        (report.rhos, range(1, 8, 2)),
        (report.layers["dense"]["means"], [4, 6]),
        (report.layers["conv"]["rhos"], [1, 3]),
        (report.variables["dense/bias_rho"], [7]),
    ):
        variance, signal = of(places)
        assert found["variance"] == pytest.approx(variance, rel=1e-4)
        error = 1e-4 * (abs(signal) + variance)
        assert found["signal"] == pytest.approx(signal, abs=error)
    printed = str(report)
    assert "5 examples over 9 samples" in printed
    assert "conv" in printed and "all of these" in printed


class Count(keras.layers.Layer):
    traces = 0

    def call(self, inputs):
        Count.traces += 1
        return inputs


def test_traces_once_for_all_samples_and_calls_until_compiled_again():
    model, (x, y) = network([Count()]), images()
    model.compile("sgd", CROSS_ENTROPY)
    Count.traces = 0
    first = measure(model, x, y, samples=3)
    assert measure(model, x, y, samples=3) == first
    assert measure(model, x, y, samples=5, seed=1) != first
    assert Count.traces == 1
    model.compile("sgd", CROSS_ENTROPY)
    measure(model, x, y, samples=2)
    assert Count.traces == 2


def fails(y_true, y_pred):
    raise ZeroDivisionError


def test_model_does_not_change_also_after_an_error():
    noise = [keras.layers.BatchNormalization(), keras.layers.Dropout(0.5)]
    model, (x, y) = network(noise), images()
    model.compile("adam", CROSS_ENTROPY, metrics=["accuracy"])
    model.evaluate(x, y, verbose=0)
    model.optimizer.build(model.trainable_variables)

    def state():
        of = [*model.variables, *model.optimizer.variables]
        of += model.metrics_variables
        return [v.numpy().copy() for v in of]

    before = state()
    measure(model, x, y, samples=3)
    with pytest.raises(ZeroDivisionError):
        measure(model, x, y, samples=3, loss=fails)
    for now, then in zip(state(), before, strict=True):
        np.testing.assert_array_equal(now, then)
    assert not model.losses
    # It did not invent an N that training would believe in.
    with pytest.raises(ValueError, match="needs the number of training ex"):
        model.fit(x, y, verbose=0)


def test_frozen_layers_count_and_layers_without_influence_have_zero():
    model, (x, y) = network(), images()
    other = layers.MeanFieldDense(2, name="other")(model.inputs[0])
    model = keras.Model(model.inputs, [model.outputs[0], other])
    model.compile("sgd", [CROSS_ENTROPY, None])
    before = measure(model, x, [y, y], samples=3)
    assert before.layers["other"]["means"]["variance"] == 0
    assert np.isnan(before.layers["other"]["means"]["snr"])
    model.get_layer("conv").trainable = False
    model.compile("sgd", [CROSS_ENTROPY, None])
    assert measure(model, x, [y, y], samples=3) == before


def test_result_under_a_strategy_equals_that_of_one_device(mirrored):
    found = []
    for scope in (contextlib.nullcontext(), mirrored.scope()):
        with scope:
            model = linear("MeanFieldDense")
            model.set_weights([np.ones((4, 1)), np.zeros((4, 1))])
        found.append(measure(model, samples=4))
    one, other = (report.means["variance"] for report in found)
    assert other == pytest.approx(one, rel=1e-5)


def test_wrong_input_is_refused():
    model, plain = linear("RadialDense"), keras.Sequential()
    plain.add(keras.Input((4,)))
    plain.add(keras.layers.Dense(1))
    unbuilt = keras.Sequential([layers.RadialDense(1)])
    for message, call in (
        ("must have variational layers", lambda: measure(plain, loss="mse")),
        ("not compiled with one", lambda: measure(network())),
        (
            "of at least 2. Received: samples=1",
            lambda: measure(model, samples=1),
        ),
        (
            "an integer of at least 2. Rec.*samples=2.5",
            lambda: measure(model, samples=2.5),
        ),
        (r"\[3, 12\] examples", lambda: measure(model, y=Y[:3])),
        ("when it is built", lambda: measure(unbuilt, loss="mse")),
        ("must be a `keras.Model`", lambda: measure(model.layers[0])),
        ("`seed` must be an integer", lambda: measure(model, seed=-1)),
    ):
        with pytest.raises(ValueError, match=message):
            call()


def test_callback_measures_logs_and_continues_after_a_kill(tmp_path):
    def run(epochs, directory):
        keras.utils.set_random_seed(2)
        model = bdl.Sequential(
            [keras.Input((4,)), layers.MeanFieldDense(1, name="linear")]
        )
        model.compile("sgd", "mse")
        noise = bdl.callbacks.GradientVariance((X, Y), every=2, samples=3)
        callbacks = [noise, bdl.callbacks.Checkpoint(tmp_path / directory)]
        logs = model.fit(
            X, Y, epochs=epochs, batch_size=12, verbose=0, callbacks=callbacks
        ).history
        return model, noise, logs

    model, noise, logs = run(4, "whole")
    assert list(noise.reports) == [0, 2, 4]
    now = measure(model, samples=3)
    assert noise.reports[4] == now
    for of, numbers in (("means", now.means), ("rhos", now.rhos)):
        logged = logs[f"gradient_variance_{of}"]
        np.testing.assert_array_equal(np.isnan(logged), [True, False] * 2)
        assert logged[3] == numbers["variance"]
    run(3, "killed")
    _, again, _ = run(4, "killed")
    assert again.reports == noise.reports
    with pytest.raises(ValueError, match="`every` must be"):
        bdl.callbacks.GradientVariance((X, Y), every=0)
