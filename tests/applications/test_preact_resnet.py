import keras
import numpy as np
import pytest

import keras_bdl as bdl
from keras_bdl.applications import PreActResNet
from keras_bdl.applications import PreActResNet18
from keras_bdl.applications._residual_network import BOTTLENECK
from keras_bdl.applications._residual_network import Architecture
from keras_bdl.applications._residual_network import Stage
from keras_bdl.applications._residual_network import Stem


def count(model):
    return sum(int(np.prod(v.shape)) for v in model.trainable_variables)


def test_network_of_depth_18_has_11_17_million_weights():
    expected = 3 * 9 * 64  # the first convolution
    inputs = 64
    for width in (64, 128, 256, 512):
        for _ in range(2):
            expected += 2 * inputs + 9 * inputs * width  # norm, convolution
            expected += 2 * width + 9 * width * width
            expected += inputs * width if inputs != width else 0
            inputs = width
    expected += 2 * 512 + 512 * 10 + 10
    assert count(PreActResNet18()) == expected == 11_172_170


def test_shortcuts_pass_on_their_input():
    model = PreActResNet(14, (8, 8, 1), filters=4, activation="softplus")
    for layer in model.layers:
        if layer.name.endswith("conv2"):
            layer.kernel.assign(np.zeros(layer.kernel.shape))
    first = model.get_layer("stage1_block1_add").output
    second = model.get_layer("stage1_block2_add").output
    stem = model.get_layer("stem_conv").output
    x = np.random.default_rng(0).normal(size=(2, 8, 8, 1))
    outputs = keras.Model(model.input, [stem, first, second])(x)
    for one in outputs[1:]:
        np.testing.assert_array_equal(one, outputs[0])


@pytest.mark.parametrize("include_top", [True, False])
def test_bottlenecks_and_features(include_top):
    table = Architecture(Stem(3), BOTTLENECK, (Stage(1, 1, 1), Stage(1, 2, 2)))
    model = PreActResNet(
        table, (8, 8, 3), classes=5, filters=4, include_top=include_top
    )
    assert model.output_shape == (
        (None, 5) if include_top else (None, 4, 4, 32)
    )
    assert isinstance(model, bdl.Model) and model.name == "preact_resnet_8"
