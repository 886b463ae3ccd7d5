import keras
import numpy as np
import pytest
import tensorflow as tf

import keras_bdl as bdl
from tests.helpers import assert_moment
from tests.helpers import cross_entropy
from tests.helpers import dtype_policy

X = np.random.default_rng(0).normal(size=(16, 3)).astype("float32")
STDDEV = float(np.log1p(np.exp(-1.0)))


def linear(estimator="weight", samples=1, **compile_options):
    layer = bdl.layers.MeanFieldDense(
        1,
        use_bias=False,
        estimator=estimator,
        rho_initializer=keras.initializers.Constant(-1.0),
        seed=3,
    )
    model = bdl.Sequential([keras.Input((3,)), layer])
    model.compile("sgd", "mse", samples=samples, **compile_options)
    return model


def weights_of(model, **predict_options):
    """Returns the weights of the linear function that a model predicts."""
    y = model.predict(X, verbose=0, **predict_options)
    weights, *_ = np.linalg.lstsq(X, y, rcond=None)
    np.testing.assert_allclose(X @ weights, y, atol=1e-5)
    return weights[:, 0]


@pytest.mark.parametrize(
    "estimator, jit_compile",
    [("weight", True), ("flipout", False), ("local", False)],
)
def test_draw_is_one_function_for_all_batches(estimator, jit_compile):
    model = linear(estimator, jit_compile=jit_compile)
    mean = np.asarray(model.layers[0].kernel)[:, 0]
    weights = weights_of(model, batch_size=5)
    assert np.abs(weights - mean).min() > 1e-4
    np.testing.assert_array_equal(weights, weights_of(model, batch_size=5))


def test_draw_is_one_function_on_all_replicas(mirrored):
    with mirrored.scope():
        model = linear()
        mean = np.asarray(model.layers[0].kernel)[:, 0]
    assert np.abs(weights_of(model) - mean).min() > 1e-4


def test_draws_have_the_distribution_of_the_layer():
    model = linear()
    layer = model.layers[0]

    @tf.function(autograph=False)
    def draw_all():
        return tf.map_fn(
            held, tf.range(2000), fn_output_signature=tf.TensorSpec(3)
        )

    def held(draw):
        with layer.holding(draw):
            return layer.kernel[:, 0]

    noise = (draw_all().numpy() - np.asarray(layer.kernel)[:, 0]) / STDDEV
    assert_moment(noise.mean(0), 0.0, 1 / np.sqrt(2000))
    assert_moment((noise**2).mean(0), 1.0, np.sqrt(2 / 2000))
    correlations = np.corrcoef(noise.T)[np.triu_indices(3, 1)]
    assert_moment(correlations, 0.0, 1 / np.sqrt(2000))


def test_evaluation_uses_the_average_of_the_samples():
    model = linear(samples=4)
    y = X[:, :1]
    weights = weights_of(model)
    mean = np.asarray(model.layers[0].kernel)[:, 0]
    # The average of four samples differs from each sample.
    z = (weights - mean) / (STDDEV / 2)
    assert 1e-2 < np.linalg.norm(z) < 5
    logs = model.evaluate(X, y, batch_size=5, verbose=0, return_dict=True)
    nll = np.mean((X @ weights[:, None] - y) ** 2)
    assert logs["nll"] == pytest.approx(nll, rel=1e-4)
    assert logs["loss"] == pytest.approx(nll, rel=1e-4)  # N is unknown
    logs = model.fit(
        X, y, verbose=0, validation_data=(X, y), validation_batch_size=16
    ).history
    kl = float(model.layers[0].kl_divergence()) / 16
    assert logs["val_kl"][0] == pytest.approx(kl, rel=1e-5)
    assert logs["val_loss"][0] == pytest.approx(
        logs["val_nll"][0] + kl, rel=1e-5
    )


def test_validation_with_draws_changes_nothing_in_training():
    fitted = []
    for validation in (None, (X, X[:, :1])):
        keras.utils.set_random_seed(0)
        model = linear(samples=2)
        model.fit(X, X[:, :1], epochs=3, verbose=0, validation_data=validation)
        fitted.append(model.get_weights())
    for a, b in zip(*fitted, strict=True):
        np.testing.assert_array_equal(a, b)


def test_probabilities_of_shared_and_nested_layers_are_averaged():
    shared = bdl.layers.RadialDense(
        3, "tanh", rho_initializer=keras.initializers.Constant(1.0)
    )
    inner = keras.Sequential([keras.Input((3,)), shared])
    inputs = keras.Input((3,))
    head = bdl.layers.MeanFieldDense(
        2, rho_initializer=keras.initializers.Constant(0.0)
    )
    model = bdl.Model(inputs, head(inner(shared(inputs))))
    loss = cross_entropy()
    model.compile("adam", loss, samples=3)
    probabilities = []
    for draw in range(3):
        with shared.holding(draw), head.holding(draw):
            kernel, bias = np.array(shared.kernel), np.array(shared.bias)
            hidden = np.tanh(np.tanh(X @ kernel + bias) @ kernel + bias)
            logits = hidden @ np.array(head.kernel) + np.array(head.bias)
            probabilities.append(tf.nn.softmax(logits).numpy())
    assert np.std(probabilities, 0).max() > 0.01
    np.testing.assert_allclose(
        tf.nn.softmax(model.predict(X, verbose=0)),
        np.mean(probabilities, 0),
        rtol=1e-4,
    )


def test_samples_work_in_half_precision():
    with dtype_policy("mixed_bfloat16"):
        model = linear(samples=2)
        assert np.isfinite(model.predict(X, verbose=0)).all()


def test_padding_counts_in_no_score_of_several_samples():
    x = np.array([[1, 2, 0], [3, 0, 0], [2, 1, 4]])
    y = np.array([[0, 1, 1], [1, 0, 0], [0, 0, 1]])
    model = bdl.Sequential(
        [
            keras.Input((3,), dtype="int32"),
            keras.layers.Embedding(5, 2, mask_zero=True),
            bdl.layers.MeanFieldDense(2),
        ]
    )
    score = keras.metrics.SparseCategoricalCrossentropy(
        name="score", from_logits=True
    )
    model.compile(
        "sgd", cross_entropy(), metrics=["accuracy", score], samples=3
    )
    for weight in model.weights[:2]:
        weight.assign(20.0 * weight)  # far from 0, so that outputs differ
    found = model.evaluate(x, y, verbose=0, return_dict=True)
    without_padding = np.where(x > 0, y, 1 - y)
    again = model.evaluate(x, without_padding, verbose=0, return_dict=True)
    assert found == again
    logits = model.predict(x, verbose=0)[x > 0].astype("float64")
    log_p = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    labels = y[x > 0]
    np.testing.assert_allclose(
        found["score"], -log_p[np.arange(6), labels].mean(), rtol=1e-5
    )
    np.testing.assert_allclose(
        found["accuracy"], np.mean(log_p.argmax(-1) == labels), rtol=1e-6
    )
