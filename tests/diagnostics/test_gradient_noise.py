import json

import keras
import numpy as np
import pytest
import tensorflow as tf
from scipy import special

import keras_bdl as bdl
from keras_bdl.diagnostics import gradient_noise
from keras_bdl.diagnostics._gradient_noise import GradientNoiseReport
from tests.diagnostics import networks
from tests.diagnostics.networks import Count
from tests.diagnostics.networks import X
from tests.diagnostics.networks import Y
from tests.diagnostics.networks import softmax_regression
from tests.helpers import assert_moment


def measure(model, x=X, y=Y, **kwargs):
    return gradient_noise(model, (x, y), verbose=0, **kwargs)


def per_example(model):
    """Returns gradients of softmax regression by their formula."""
    p = special.softmax(networks.logits(model.get_weights()), 1)
    of_logits = p - np.eye(4)[Y]
    kernel = np.einsum("na,ni->nai", X, of_logits).reshape(21, 12)
    return np.hstack([kernel, of_logits])


@pytest.mark.parametrize("kind", [keras.Sequential, bdl.Sequential])
def test_trace_of_batches_of_one_is_the_sample_covariance(kind):
    model = softmax_regression(kind, kernel_regularizer="l2")
    Count.traces = 0
    found = measure(model, batch_size=1)
    assert measure(model, batch_size=1) == found
    assert Count.traces == 1
    variances = per_example(model).var(0, ddof=1)
    assert found.trace == pytest.approx(variances.sum(), rel=1e-5)
    kernel, bias = found.variables.values()
    assert kernel == pytest.approx(variances[:12].sum(), rel=1e-5)
    assert bias == pytest.approx(variances[12:].sum(), rel=1e-5)
    mean = per_example(model).mean(0)
    mean[:12] += 0.02 * model.get_weights()[0].ravel()
    assert found.gradient_norm == pytest.approx(np.linalg.norm(mean), rel=1e-5)


def test_trace_of_larger_batches_has_the_same_expectation():
    # Also where the last one is smaller: 21 = 3 * 6 + 3.
    model = softmax_regression()
    rng, traces = np.random.default_rng(0), []
    for _ in range(100):
        order = rng.permutation(21)
        traces.append(measure(model, X[order], Y[order], batch_size=6).trace)
    error = np.std(traces) / 10
    expected = per_example(model).var(0, ddof=1).sum()
    assert_moment(np.mean(traces), expected, error)
    assert error < 0.1 * expected


def test_standard_error_equals_the_spread_over_repetitions():
    model = softmax_regression()
    rng, found = np.random.default_rng(1), []
    for _ in range(100):
        rows = rng.integers(0, 21, 200)
        found.append(measure(model, X[rows], Y[rows], batch_size=10))
    seen = np.std([one.trace for one in found])
    said = np.mean([one.trace_error for one in found])
    # The spread of a standard deviation of 100 numbers, and of what is said.
    assert said == pytest.approx(seen, rel=0.4)


def test_learning_rate_follows_the_theorem():
    model = softmax_regression()
    data = tf.data.Dataset.from_tensor_slices((X, Y)).batch(8)
    found = gradient_noise(model, data, verbose=0)
    expected = 2 * 8 * 16 / (21 * found.trace)
    assert found.learning_rate == pytest.approx(expected)
    options = {"momentum": 0.9, "dataset_size": 210, "batch_size": 8}
    slower = measure(model, **options).learning_rate
    assert slower == pytest.approx(expected / 100)


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_learning_rate_makes_sgd_as_wide_as_the_posterior(momentum):
    # Of a mean with known variance 1 and a flat prior: variance 1 / N.
    x, y = np.ones((400, 1), "f"), networks.RNG.normal(size=400).astype("f")
    model = keras.Sequential(
        [keras.Input((1,)), keras.layers.Dense(1, use_bias=False)]
    )
    model.compile("sgd", lambda y, z: (y[:, None] - z) ** 2 / 2)
    model.set_weights([y.mean().reshape(1, 1)])
    found = measure(model, x, y, momentum=momentum, batch_size=1)
    rate = 20 * found.learning_rate
    rng = np.random.default_rng(0)
    chains = np.full(20_000, y.mean())
    velocities = np.zeros_like(chains)
    for _ in range(80):
        batches = y[rng.integers(0, 400, (len(chains), 20))]
        velocities *= momentum
        velocities -= rate * (chains - batches.mean(1))
        chains += velocities
    # The theorem is of continuous time: finite steps add their share.
    expected = (1 / 400) / (1 - rate / 2 / (1 + momentum))
    error = expected * np.sqrt(2 / len(chains))
    assert_moment(chains.var(), expected, error)


def test_batch_norm_and_dropout_do_not_change():
    model = networks.with_batch_norm()
    before = networks.state(model)
    found = measure(model, batch_size=7)
    networks.assert_same(networks.state(model), before)
    assert found.batches == 3 and found.trace > 0
    assert measure(model, batch_size=7, training=False).trace != found.trace


def test_result_under_a_strategy_equals_that_of_one_device(mirrored):
    with mirrored.scope():
        model = softmax_regression()
    expected = per_example(model).var(0, ddof=1).sum()
    found = measure(model, batch_size=1)
    assert found.trace == pytest.approx(expected, rel=1e-5)


def test_report_prints_and_comes_back_from_json():
    found = measure(softmax_regression(), batch_size=5)
    text = json.dumps(found.to_dict())
    assert GradientNoiseReport(**json.loads(text)) == found
    assert "5 batches of 5, 21 examples, 16 weights" in str(found)


def test_wrong_input_is_refused():
    model = softmax_regression()
    for message, arguments in (
        ("at least two batches. Rec.*one batch of 21", {"batch_size": 21}),
        ("`momentum` must be", {"momentum": 1.0}),
        ("`dataset_size` must be", {"dataset_size": 0}),
        ("`batch_size` must be", {"batch_size": 0}),
    ):
        with pytest.raises(ValueError, match=message):
            measure(model, **arguments)
