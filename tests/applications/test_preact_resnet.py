import keras
import numpy as np
import pytest

import keras_bdl as bdl
from keras_bdl.applications import PreActResNet
from keras_bdl.applications import PreActResNet18
from keras_bdl.applications import PreResNet
from keras_bdl.applications import WideResNet
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


@pytest.mark.parametrize(
    "depth, bottleneck, convolutions",
    [(20, None, 18), (29, True, 27), (26, False, 24)],
)
def test_depth_counts_the_convolutions_of_the_branches(
    depth, bottleneck, convolutions
):
    model = PreResNet(depth, (8, 8, 1), filters=1, bottleneck=bottleneck)
    names = [x.name for x in model.layers if "_block" in x.name]
    assert sum("_conv" in name for name in names) == convolutions
    assert model.name == f"preresnet_{depth}"
    assert PreResNet(20, (8, 8, 1), filters=1, name="net").name == "net"


@pytest.mark.parametrize(
    "depth, bottleneck, message",
    [
        (
            44,
            None,
            r"9n \+ 2. The nearest .*38 and 47. Received: depth=44",
        ),
        (
            29,
            None,
            r"6n \+ 2. The nearest .*26 and 32. Received: depth=29",
        ),
        (
            2,
            True,
            r"9n \+ 2. The nearest .*11 and 20. Received: depth=2",
        ),
        ("164", None, r"`depth` must be a positive integer.*'164'"),
    ],
)
def test_wrong_depth_is_refused(depth, bottleneck, message):
    with pytest.raises(ValueError, match=message):
        PreResNet(depth, bottleneck=bottleneck)


def test_only_the_blocks_are_wide():
    model = WideResNet(10, 3, (16, 16, 3), filters=2)
    shapes = [
        model.get_layer(name).output.shape[1:]
        for name in ("stem_conv", *(f"stage{i}_block1_add" for i in (1, 2, 3)))
    ]
    assert shapes == [(16, 16, 2), (16, 16, 6), (8, 8, 12), (4, 4, 24)]
    assert model.name == "wide_resnet_10_3"


@pytest.mark.parametrize("depth, blocks", [(10, 3), (28, 12)])
def test_dropout_is_between_the_convolutions_of_each_block(depth, blocks):
    model = WideResNet(depth, 1, (8, 8, 1), filters=1, dropout_rate=0.3)
    found = [x for x in model.layers if isinstance(x, keras.layers.Dropout)]
    assert len(found) == blocks and {x.rate for x in found} == {0.3}
    for layer in found:
        block = layer.name.removesuffix("_dropout2")
        before = model.get_layer(f"{block}_2_activation")
        after = model.get_layer(f"{block}_conv2")
        assert layer.input is before.output and after.input is layer.output


@pytest.mark.parametrize(
    "arguments, message",
    [
        (
            {"depth": 26},
            r"6n \+ 4. The nearest .*22 and 28. .*depth=26",
        ),
        ({"depth": 4}, r"6n \+ 4. The nearest .*10 and 16. .*depth=4"),
        ({"width": 0}, "`width` must be a positive integer. .*width=0"),
        ({"width": 2.0}, "`width` must be a positive integer. .*width=2.0"),
    ],
    ids=str,
)
def test_wrong_argument_of_a_wide_network_is_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        WideResNet(**{"depth": 10, "width": 1, **arguments})
