import keras
import numpy as np
import pytest
import scipy.integrate
import scipy.special
import tensorflow as tf
from tensorflow_probability import distributions as tfd

import keras_bdl as bdl
from keras_bdl.applications import ResNetPlusPlus
from keras_bdl.applications import ResNetPlusPlus50
from keras_bdl.applications import ResNetPlusPlus56
from keras_bdl.priors import Laplace
from tests.helpers import cross_entropy
from tests.helpers import dtype_policy

SMALL = {"input_shape": (8, 8, 1), "filters": 8}


@pytest.fixture(scope="module")
def digits():
    from sklearn.datasets import load_digits

    x, y = load_digits(return_X_y=True)
    x = (x - x.mean()) / x.std()
    return x.reshape(-1, 8, 8, 1).astype("float32"), y


def randomized(model):
    rng = np.random.default_rng(0)
    model.set_weights([rng.normal(0, 0.5, w.shape) for w in model.weights])
    return model


def stage_outputs(model):
    last = {}
    for layer in model.layers:
        if layer.name.endswith("_add"):
            last[layer.name.split("_")[0]] = layer.output
    return [*last.values(), model.get_layer("selu").output]


@pytest.mark.parametrize(
    "make, size, stages",
    [
        (lambda shape: ResNetPlusPlus(20, shape), 16, 3),
        (lambda shape: ResNetPlusPlus(110, shape), 16, 3),
        (lambda shape: ResNetPlusPlus50(shape, filters=16), 64, 4),
    ],
    ids=["20", "110", "50 for ImageNet"],
)
def test_every_stage_has_unit_variance_at_initialisation(make, size, stages):
    shape = (size, size, 3)
    model = make(shape)
    outputs = stage_outputs(model)
    assert len(outputs) == stages + 1
    x = np.random.default_rng(0).normal(size=(8, *shape)).astype("float32")
    for output in keras.Model(model.input, outputs)(x):
        assert 0.5 < np.var(output) < 2.0


def test_network_is_the_composition_of_its_formulas():
    model = randomized(ResNetPlusPlus(8, (8, 8, 1), filters=2))
    x = np.random.default_rng(0).normal(size=(3, 8, 8, 1)).astype("float32")

    def conv(name, inputs, strides=1):
        layer = model.get_layer(name)
        outputs = tf.nn.conv2d(inputs, layer.kernel, strides, "SAME")
        return outputs if layer.bias is None else outputs + layer.bias

    y = conv("stem_conv", x)
    for block, strides in (("stage1", 1), ("stage2", 2), ("stage3", 2)):
        name = f"{block}_block1"
        active = tf.nn.selu(y)
        branch = tf.nn.selu(conv(f"{name}_conv1", active, strides))
        if strides == 2:
            y = conv(f"{name}_projection", active, strides)
        y = y + conv(f"{name}_conv2", branch)
    features = tf.reduce_mean(tf.nn.selu(y), axis=(1, 2))
    head = model.get_layer("predictions")
    logits = tf.matmul(features, head.kernel) + head.bias
    np.testing.assert_allclose(model(x), logits, rtol=1e-4, atol=1e-5)


def convolution_size(size, inputs, filters, bias=True):
    """Counts the weights of kernel, scales and, if used, bias."""
    return size * size * inputs * filters + filters + bias * filters


def small_image_size(depth, filters):
    """Counts the weights for three channels and ten classes."""
    blocks = (depth - 2) // 6
    size = convolution_size(3, 3, filters)
    for inputs, width in (
        (filters, filters),
        (filters, 2 * filters),
        (2 * filters, 4 * filters),
    ):
        size += convolution_size(3, inputs, width)
        size += (2 * blocks - 1) * convolution_size(3, width, width)
        if inputs != width:
            size += convolution_size(1, inputs, width, bias=False)
    return size + convolution_size(1, 4 * filters, 10)


def imagenet_size():
    """Counts the weights for three channels and 1000 classes."""
    size = convolution_size(7, 3, 64)
    inputs = 64
    for width, blocks in ((64, 3), (128, 4), (256, 6), (512, 3)):
        size += convolution_size(1, inputs, 4 * width, bias=False)
        for _ in range(blocks):
            size += convolution_size(1, inputs, width)
            size += convolution_size(3, width, width)
            size += convolution_size(1, width, 4 * width)
            inputs = 4 * width
    return size + convolution_size(1, 2048, 1000)


@pytest.mark.parametrize(
    "make, arguments, expected",
    [
        (ResNetPlusPlus, {"depth": 20}, small_image_size(20, 16)),
        (ResNetPlusPlus, {"depth": 56}, small_image_size(56, 16)),
        (ResNetPlusPlus, {"depth": 110}, small_image_size(110, 16)),
        (ResNetPlusPlus56, {}, small_image_size(56, 32)),
        (ResNetPlusPlus50, {}, imagenet_size()),
    ],
    ids=["20", "56", "110", "56 of the paper", "50 for ImageNet"],
)
def test_number_of_weights_is_the_stated_one(make, arguments, expected):
    assert make(**arguments).count_params() == expected
    assert f"{expected:,}" in make.__doc__


def log_normalizer(d):
    """Log of the integral of exp(-d/2 (r^2 - 1)^2) over d dimensions."""
    integral, _ = scipy.integrate.quad(
        lambda r: r ** (d - 1) * np.exp(-d / 2 * (r**2 - 1) ** 2),
        0.0,
        3.0,
        points=[1.0, 1.17, 1.4],
    )
    half = d / 2
    log_area = np.log(2) + half * np.log(np.pi) - scipy.special.gammaln(half)
    return log_area + np.log(integral)


def test_prior_terms_equal_their_formulas():
    model = randomized(ResNetPlusPlus(8, (8, 8, 1), filters=2, dataset_size=9))
    energy = 0.0
    for variable in model.trainable_variables:
        w = variable.numpy().astype("float64")
        if variable.name == "scale":
            energy += np.sum(np.abs(w) / 5 + np.log(10))
        elif variable.name == "bias":
            energy += np.sum(w**2 / 2 + np.log(2 * np.pi) / 2)
        else:
            vectors = w.reshape(-1, w.shape[-1])
            d = len(vectors)
            excess = np.sum(vectors**2, axis=0) - 1
            energy += np.sum(d / 2 * excess**2 + log_normalizer(d))
    assert float(sum(model.losses)) == pytest.approx(energy / 9, rel=1e-5)


def test_given_priors_go_to_their_weights():
    scale, bias = Laplace(2.0), tfd.Normal(0.0, 2.0)
    model = ResNetPlusPlus(
        8, **SMALL, scale_prior=scale, direction_prior=None, bias_prior=bias
    )
    for variable in model.trainable_variables:
        if variable.name == "scale":
            assert variable.regularizer is scale
        elif variable.name == "direction":
            assert variable.regularizer is None
        else:
            assert variable.regularizer.distribution is bias


def test_fit_counts_the_examples_for_every_prior_also_after_loading(tmp_path):
    # A model shares one instance of a prior among its layers.
    model = randomized(ResNetPlusPlus(8, **SMALL))
    model.compile(keras.optimizers.SGD(0.0), cross_entropy(), run_eagerly=True)
    x = np.random.default_rng(1).normal(size=(6, 8, 8, 1)).astype("float32")
    y = np.arange(6)
    model.fit(x, y, verbose=0)
    six = float(sum(model.losses))
    model.save(tmp_path / "m.keras")
    loaded = keras.models.load_model(tmp_path / "m.keras")
    np.testing.assert_array_equal(loaded(x), model(x))
    loaded.fit(x[:3], y[:3], verbose=0)
    assert float(sum(loaded.losses)) == pytest.approx(2 * six, rel=1e-6)


def test_learns_digits_from_scratch(digits):
    model = ResNetPlusPlus(8, **SMALL)
    sampler = bdl.ATMC(1e-3, average_speed=5e-3, max_speed=2e-2)
    model.compile(sampler, cross_entropy(), metrics=["accuracy"])
    model.fit(*digits, batch_size=64, epochs=4, verbose=0)
    assert model.evaluate(*digits, verbose=0)[1] > 0.8


def test_mixed_precision_keeps_weights_and_losses_in_float32():
    with dtype_policy("mixed_bfloat16"):
        model = ResNetPlusPlus(8, **SMALL, dataset_size=6)
        model.compile("sgd", cross_entropy(), run_eagerly=True)
        x = np.random.default_rng(1).normal(size=(6, 8, 8, 1))
        history = model.fit(x, np.arange(6), verbose=0)
    assert model(x).dtype == "bfloat16"
    assert {v.dtype for v in model.weights} == {"float32"}
    assert {loss.dtype.name for loss in model.losses} == {"float32"}
    assert np.isfinite(history.history["loss"]).all()


def test_only_the_last_convolution_of_a_branch_starts_at_branch_scale():
    model = ResNetPlusPlus(8, **SMALL, branch_scale=0.3)
    for layer in model.layers:
        if hasattr(layer, "scale"):
            start = 0.3 if layer.name.endswith("_conv2") else 1.0
            np.testing.assert_array_equal(layer.scale, np.float32(start))


@pytest.mark.parametrize(
    "pooling, shape", [(None, (2, 2, 32)), ("max", (32,))], ids=str
)
def test_network_without_top_returns_features(pooling, shape):
    model = ResNetPlusPlus(8, **SMALL, include_top=False, pooling=pooling)
    assert model.output_shape == (None, *shape)


def test_images_of_any_size_with_probabilities_for_outputs():
    model = ResNetPlusPlus(
        8, (None, None, 1), filters=2, classifier_activation="softmax"
    )
    for size in (5, 16):
        probabilities = model(np.ones((2, size, size, 1)))
        np.testing.assert_allclose(np.sum(probabilities, -1), 1, rtol=1e-5)


def test_input_tensor_takes_the_place_of_the_input():
    inputs = keras.Input((8, 8, 1))
    rescaled = keras.layers.Rescaling(0.5)(inputs)
    model = ResNetPlusPlus(8, filters=2, input_tensor=rescaled, name="net")
    plain = ResNetPlusPlus(8, (8, 8, 1), filters=2)
    plain.set_weights(model.get_weights())
    x = np.random.default_rng(0).normal(size=(3, 8, 8, 1))
    np.testing.assert_allclose(model(x), plain(0.5 * x), rtol=1e-5)
    assert (model.name, plain.name) == ("net", "resnet_plus_plus_8")


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({"depth": 21}, "nearest depths are 20 and 26. Received: depth=21"),
        ({"depth": 2}, "nearest depths are 8 and 14. Received: depth=2"),
        ({"depth": 20.0}, "`depth` must be a positive integer"),
        ({"filters": 0}, "`filters` must be a positive integer"),
        ({"classes": 2.5}, "`classes` must be a positive integer"),
        ({"pooling": "mean"}, "`pooling` must be one of"),
        ({"branch_scale": float("nan")}, "`branch_scale` must be a number"),
        ({"scale_prior": "l2"}, "`prior` must be `None`, one of"),
    ],
    ids=str,
)
def test_wrong_argument_is_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        ResNetPlusPlus(**{"depth": 8, **SMALL, **arguments})
