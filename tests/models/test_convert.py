import keras
import numpy as np
import pytest

import keras_bdl as bdl
from keras_bdl import layers
from keras_bdl.models import convert

X = np.random.default_rng(0).normal(size=(6, 8, 8, 3)).astype("float32")


def network():
    keras.utils.set_random_seed(0)
    inputs = keras.Input((8, 8, 3))
    x = keras.layers.Conv2D(4, 3, strides=2, name="stem")(inputs)
    x = keras.layers.BatchNormalization()(x)
    inner = keras.Sequential(
        [keras.Input((3, 3, 4)), keras.layers.DepthwiseConv2D(2)], name="inner"
    )
    x = keras.layers.Flatten()(inner(x))
    shared = keras.layers.Dense(16, "relu", name="shared")
    model = keras.Model(
        inputs, keras.layers.Dense(3, name="head")(shared(shared(x)))
    )
    for weight in model.weights:
        weight.assign(weight + 0.1)
    return model


@pytest.mark.parametrize("to", ["mean_field", "radial"])
def test_copy_computes_what_the_model_computes(to, tmp_path):
    model = network()
    before = [w.copy() for w in model.get_weights()]
    copy = convert(model, to)
    assert isinstance(copy, bdl.Model)
    np.testing.assert_allclose(copy(X), model(X), atol=1e-5)
    drawn = [n for n in copy._flatten_layers() if hasattr(n, "kl_divergence")]
    assert len(drawn) == 4
    copy.compile("adam", keras.losses.SparseCategoricalCrossentropy(True))
    logs = copy.fit(X, np.arange(6) % 3, verbose=0).history
    assert np.isfinite(logs["kl"]).all()
    for a, b in zip(model.get_weights(), before, strict=True):
        np.testing.assert_array_equal(a, b)
    copy.save(tmp_path / "copy.keras")
    loaded = keras.models.load_model(tmp_path / "copy.keras")
    np.testing.assert_allclose(loaded(X), copy(X), atol=1e-6)
    assert bdl.predict(copy, X, samples=3, verbose=0).num_samples == 3


def test_selectors_say_what_becomes_what():
    copy = convert(
        network(), {"head": "radial", keras.layers.Conv2D: "mean_field"}
    )
    assert type(copy.get_layer("head")) is layers.RadialDense
    assert type(copy.get_layer("stem")) is layers.MeanFieldConv2D
    assert type(copy.get_layer("shared")) is keras.layers.Dense
    with pytest.raises(ValueError, match="nothing_like_this"):
        convert(network(), {"nothing_like_this": "radial"})


def test_layer_without_a_rule_is_an_error_that_names_it():
    model = keras.Sequential(
        [keras.Input((4, 3)), keras.layers.LSTM(2, name="memory")]
    )
    with pytest.raises(ValueError, match="memory"):
        convert(model, "mean_field")


def test_empirical_bayes_starts_at_its_prior():
    model = network()
    copy = convert(model, "mean_field", prior_from_weights=0.2)
    head, twin = copy.get_layer("head"), model.get_layer("head")
    assert abs(float(head.kl_divergence())) < 1e-3
    kernel = np.asarray(twin.kernel)
    scale = np.maximum(0.2 * np.abs(kernel), 1e-4)
    q = head.posteriors["kernel"]
    np.testing.assert_allclose(q.mean, kernel, rtol=1e-6)
    np.testing.assert_allclose(q.stddev, scale, rtol=1e-4)
    np.testing.assert_allclose(head.kernel_prior_stddev, scale, rtol=1e-6)


def test_mc_dropout_drops_inputs_in_training_only():
    model = network()
    copy = convert(model, {"head": "mc_dropout"}, rate=0.5)
    np.testing.assert_allclose(copy(X), model(X), atol=1e-5)
    assert not np.allclose(copy(X, training=True), model(X), atol=1e-3)
    copy.compile("sgd", keras.losses.SparseCategoricalCrossentropy(True))
    dropout = bdl.posteriors.MCDropout()
    p = bdl.predict(copy, X, dropout, samples=4, verbose=0)
    assert p.mutual_information.max() > 0
