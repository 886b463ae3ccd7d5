import keras
import pytest

from keras_bdl.applications import WideResNet


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
def test_wrong_argument_is_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        WideResNet(**{"depth": 10, "width": 1, **arguments})
