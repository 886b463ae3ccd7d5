import numpy as np
import tensorflow as tf

from keras_bdl.applications import LeNet5


def test_network_is_the_composition_of_its_layers():
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
