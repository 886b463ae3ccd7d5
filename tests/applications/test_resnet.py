import keras
import numpy as np
import pytest
import tensorflow as tf

import keras_bdl as bdl
from keras_bdl.applications import ResNet
from keras_bdl.applications import ResNet18


def test_network_is_the_composition_of_its_formulas():
    model = ResNet(8, (8, 8, 1), filters=2)
    rng = np.random.default_rng(0)
    model.set_weights([rng.uniform(0.5, 1.5, w.shape) for w in model.weights])
    x = rng.normal(size=(3, 8, 8, 1)).astype("float32")

    def conv(name, inputs, strides=1):
        kernel = model.get_layer(name).kernel
        y = tf.nn.conv2d(inputs, kernel, strides, "SAME")
        norm = model.get_layer(f"{name}_norm")
        y = (y - norm.moving_mean) / np.sqrt(norm.moving_variance + 1e-3)
        return y * norm.gamma + norm.beta

    y = tf.nn.relu(conv("stem_conv", x))
    for block, strides in (("stage1", 1), ("stage2", 2), ("stage3", 2)):
        name = f"{block}_block1"
        branch = tf.nn.relu(conv(f"{name}_conv1", y, strides))
        branch = conv(f"{name}_conv2", branch)
        if strides == 2:
            y = conv(f"{name}_projection", y, strides)
        y = tf.nn.relu(y + branch)
    head = model.get_layer("predictions")
    logits = tf.reduce_mean(y, axis=(1, 2)) @ head.kernel + head.bias
    np.testing.assert_allclose(model(x), logits, rtol=1e-3)


@pytest.mark.parametrize("include_top", [True, False])
def test_stem_for_imagenet_leaves_a_sixteenth_of_the_pixels(include_top):
    model = ResNet18((64, 32, 3), 5, filters=2, include_top=include_top)
    assert model.get_layer("stage1_block1_add").output.shape[1:3] == (16, 8)
    assert model.output_shape == (
        (None, 5) if include_top else (None, 2, 1, 16)
    )
    assert isinstance(model, bdl.Model) and model.name == "resnet_18"
    assert isinstance(model.get_layer("stem_pool"), keras.layers.MaxPooling2D)
