import numpy as np
import pytest
import tensorflow as tf

from keras_bdl.applications import AlexNet


def test_network_is_the_composition_of_its_layers():
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
