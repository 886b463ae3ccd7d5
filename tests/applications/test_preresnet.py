import pytest

from keras_bdl.applications import PreResNet


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
