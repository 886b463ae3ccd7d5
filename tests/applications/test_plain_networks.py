import keras
import numpy as np
import pytest
import tensorflow as tf

import keras_bdl as bdl
from keras_bdl.applications import VGG16
from keras_bdl.applications import VGG16BN
from keras_bdl.applications import AlexNet
from keras_bdl.applications import LeNet5
from keras_bdl.applications import MultiHeadMLP
from tests.helpers import assert_moment


def test_convolutions_have_the_published_number_of_weights():
    convolutions = VGG16(include_top=False).count_params()
    assert convolutions == 14_714_688 and f"{convolutions:,}" in VGG16.__doc__
    # Means and maxima of the last 512 channels, and biases.
    assert VGG16(classes=5).count_params() - convolutions == 1024 * 5 + 5


def test_radial_network_of_46_filters_has_15_million_numbers():
    network = VGG16((64, 64, 3), 2, filters=46)
    model = bdl.convert(network, "radial")
    numbers = sum(int(np.prod(v.shape)) for v in model.trainable_variables)
    expected, inputs = 2 * 8 * 46 * 2 + 2, 3  # the classifier
    for convolutions, width in ((2, 1), (2, 2), (3, 4), (3, 8), (3, 8)):
        for _ in range(convolutions):
            expected += (9 * inputs + 1) * 46 * width
            inputs = 46 * width
    assert numbers == 2 * expected
    assert round(numbers / 1e6) == 15


def test_classifier_reads_means_and_maxima_of_every_channel():
    x = np.random.default_rng(0).normal(size=(2, 64, 64, 1))
    model = VGG16((None, None, 1), 3, filters=2)
    features = VGG16((None, None, 1), filters=2, include_top=False)
    features.set_weights(model.get_weights()[:-2])
    y = np.asarray(features(x))
    assert y.shape == (2, 2, 2, 16)
    pools = np.concatenate([y.mean((1, 2)), y.max((1, 2))], axis=-1)
    head = model.get_layer("predictions")
    logits = pools @ head.kernel.numpy() + head.bias.numpy()
    np.testing.assert_allclose(model(x), logits, rtol=1e-4, atol=1e-5)


def test_network_for_small_images_has_norms_dense_layers_and_dropout():
    model = VGG16BN(filters=2, hidden_units=(5, 4), dropout_rate=0.2)
    kinds = [type(x).__name__ for x in model.layers]
    stages = [
        ["Conv2D", "BatchNormalization", "Activation"] * n + ["MaxPooling2D"]
        for n in (2, 2, 3, 3, 3)
    ]
    assert kinds == [
        "InputLayer",
        *sum(stages, []),
        "GlobalAveragePooling2D",
        *("Dropout", "Dense", "Dropout", "Dense", "Dense"),
    ]
    assert model.get_layer("stage5_pool").output.shape == (None, 1, 1, 16)
    dense = [x for x in model.layers if isinstance(x, keras.layers.Dense)]
    assert [x.units for x in dense] == [5, 4, 10]
    assert {model.get_layer(f"dropout{k}").rate for k in (1, 2)} == {0.2}


def test_dropout_may_be_left_to_the_conversion():
    network = VGG16BN((8, 8, 1), filters=1, dropout_rate=0.0)
    model = bdl.convert(network, "mc_dropout", rate=0.05)
    found = [x for x in model.layers if isinstance(x, bdl.layers.MCDropout)]
    assert len(found) == 16
    x = np.ones((2, 8, 8, 1))
    np.testing.assert_allclose(model(x), network(x), rtol=1e-5)


@pytest.mark.parametrize("pooling", ["mean", (), ("avg", "sum")])
def test_wrong_pooling_is_refused(pooling):
    with pytest.raises(ValueError, match="`pooling` must be one of .*Received"):
        VGG16(pooling=pooling)


def test_alexnet_is_the_composition_of_its_layers():
    model = AlexNet(filters=2)
    x = np.random.default_rng(0).normal(size=(2, 32, 32, 3)).astype("float32")
    y = x
    for k, strides, pooled in (
        (1, 4, True),
        (2, 1, True),
        (3, 1, False),
        (4, 1, False),
        (5, 1, True),
    ):
        layer = model.get_layer(f"conv{k}")
        y = tf.nn.conv2d(y, layer.kernel, strides, "SAME") + layer.bias
        y = tf.nn.relu(y)
        y = tf.nn.max_pool2d(y, 2, 2, "VALID") if pooled else y
    assert y.shape == (2, 1, 1, 8)
    head = model.get_layer("predictions")
    logits = y[:, 0, 0] @ head.kernel + head.bias
    np.testing.assert_allclose(model(x), logits, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("size, left", [(8, 1), (64, 2), (None, None)])
def test_features_of_images_of_any_size(size, left):
    model = AlexNet((size, size, 1), filters=1, include_top=False)
    assert model.output_shape == (None, left, left, 4)


def test_lenet_is_the_composition_of_its_layers():
    model = LeNet5(activation="softplus")
    x = np.random.default_rng(0).normal(size=(2, 32, 32, 3)).astype("float32")
    y = x
    for k in (1, 2):
        layer = model.get_layer(f"conv{k}")
        y = tf.nn.conv2d(y, layer.kernel, 1, "VALID") + layer.bias
        y = tf.nn.max_pool2d(tf.nn.softplus(y), 2, 2, "VALID")
    assert y.shape == (2, 5, 5, 16)
    y = tf.reshape(y, (2, -1))
    for name in ("dense1", "dense2", "predictions"):
        layer = model.get_layer(name)
        y = y @ layer.kernel + layer.bias
        y = y if name == "predictions" else tf.nn.softplus(y)
    np.testing.assert_allclose(model(x), y, rtol=1e-4, atol=1e-5)


def test_same_padding_accepts_digits():
    model = LeNet5((8, 8, 1), padding="same", classifier_activation="softmax")
    assert model.get_layer("pool2").output.shape == (None, 2, 2, 16)
    probabilities = model(np.ones((3, 8, 8, 1)))
    np.testing.assert_allclose(np.sum(probabilities, -1), 1, rtol=1e-6)


def test_mean_square_of_the_logits_is_twice_that_of_the_input():
    # In the mean over the initial weights, exactly: a layer of He's puts out
    # twice the mean square of what it is given, and ReLU halves it.
    x = np.random.default_rng(0).normal(size=(1, 10)).astype("float32")
    squares = [
        np.mean(np.square(MultiHeadMLP((10,), 10, units=(50, 50, 50))(x)))
        for _ in range(20)
    ]
    stderr = np.std(squares, ddof=1) / np.sqrt(len(squares))
    assert stderr < 0.3
    assert_moment(np.mean(squares), 2 * np.mean(x**2), stderr)


def test_networks_of_the_tasks_share_the_body_also_when_converted():
    model = MultiHeadMLP((4, 2), heads=3, classes=5, units=(8, 6))
    assert model.output_shape == [(None, 5)] * 3
    model = bdl.convert(model, "radial", dataset_size=10)
    networks = [bdl.Model(model.input, y) for y in model.outputs]
    x = np.ones((2, 4, 2), "float32")
    for k, network in enumerate(networks, start=1):
        names = [layer.name for layer in network.layers if layer.weights]
        assert names == ["dense1", "dense2", f"head{k}"]
        assert network.get_layer("dense1") is model.get_layer("dense1")
        np.testing.assert_allclose(network(x), model(x)[k - 1], rtol=1e-6)


@pytest.mark.parametrize("heads", [0, 2.0, True])
def test_wrong_number_of_heads_is_refused(heads):
    message = f"`heads` must be a positive integer. Received: heads={heads}"
    with pytest.raises(ValueError, match=message):
        MultiHeadMLP(heads=heads)
