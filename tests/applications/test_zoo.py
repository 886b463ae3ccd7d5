"""Tests of all networks of `keras_bdl.applications`."""

import functools
import re
from pathlib import Path

import keras
import numpy as np
import pytest

import keras_bdl as bdl
from keras_bdl import applications
from keras_bdl.applications._residual_network import BOTTLENECK
from keras_bdl.applications._residual_network import IMAGENET
from keras_bdl.applications._residual_network import SMALL_IMAGES
from keras_bdl.applications._residual_network import Architecture
from keras_bdl.applications._residual_network import Stage

GUIDE = Path(__file__).parents[2] / "examples" / "guides" / "networks.md"
SHAPE = (16, 16, 3)
SMALL = {
    "AlexNet": {"filters": 8},
    "DenseNet": {"blocks": (2, 1), "growth_rate": 4},
    "LeNet5": {},
    "MultiHeadMLP": {"heads": 1, "units": (8, 8)},
    "PreActResNet": {"depth": 8, "filters": 4, "activation": "softplus"},
    "PreActResNet18": {"filters": 2},
    "PreResNet": {"depth": 11, "filters": 4, "bottleneck": True},
    "ResNet": {"depth": 8, "filters": 4},
    "ResNet18": {"filters": 2, "stem": SMALL_IMAGES},
    "ResNetPlusPlus": {"depth": 8, "filters": 4},
    "VGG16": {"filters": 8, "pool_padding": "same"},
    "VGG16BN": {"filters": 2, "hidden_units": (8, 8)},
    "WideResNet": {"depth": 10, "width": 2, "filters": 4, "dropout_rate": 0.3},
}
# Numbers for one of these.
PRESETS = {
    "DenseNet161",
    "ResNetPlusPlus50",
    "ResNetPlusPlus56",
    "WideResNet28x10",
}
KERNELS = (
    keras.layers.Conv2D,
    keras.layers.Dense,
    bdl.layers.WeightNormConv2D,
    bdl.layers.WeightNormDense,
)
# The ResNet of depth 50, which has no name of its own.
RESNET_50 = Architecture(
    IMAGENET,
    BOTTLENECK,
    (Stage(3, 1, 1), Stage(4, 2, 2), Stage(6, 4, 2), Stage(3, 8, 2)),
)
# Two shortcuts with a norm, where the paper has padding without weights.
PROJECTIONS = (16 * 32 + 2 * 32) + (32 * 64 + 2 * 64)
# One in every stage, of w filters in and 4w out: convolutions and norms.
BOTTLENECKS = sum(
    (4 + 9 + 4) * w * w + 2 * (4 + 1 + 1) * w for w in (16, 32, 64)
)
VGG_CONVOLUTIONS = 14_714_688
COUNTS = [
    # The layers of its code: two convolutions, three dense layers.
    ("LeNet5", {}, 456 + 2416 + 48_120 + 10_164 + 850),
    # 2.47 million in the list of models that its code names as its source.
    ("AlexNet", {}, 2_472_266),
    # 0.27, 0.46, 0.66, 0.85 and 1.7 million in table 6 of the paper; exact
    # numbers were counted in copies of its network.
    ("ResNet", {"depth": 20}, 269_722 + PROJECTIONS),
    ("ResNet", {"depth": 32}, 464_154 + PROJECTIONS),
    ("ResNet", {"depth": 44}, 658_586 + PROJECTIONS),
    ("ResNet", {"depth": 56}, 853_018 + PROJECTIONS),
    ("ResNet", {"depth": 110}, 1_727_962 + PROJECTIONS),
    # torchvision.
    ("ResNet18", {}, 11_689_512),
    # A smaller first convolution, and a smaller classifier.
    (
        "ResNet18",
        {"input_shape": (32, 32, 3), "classes": 10, "stem": SMALL_IMAGES},
        11_689_512 - (49 - 9) * 3 * 64 - 513 * (1000 - 10),
    ),
    # torchvision.
    (
        "ResNet",
        {
            "depth": RESNET_50,
            "input_shape": (224, 224, 3),
            "classes": 1000,
            "filters": 64,
        },
        25_557_032,
    ),
    # The lists of pytorchcv, for CIFAR-10. In the paper 110 and 164 have 1.7
    # million.
    ("PreResNet", {"depth": 20}, 272_282),
    ("PreResNet", {"depth": 56, "bottleneck": False}, 855_578),
    ("PreResNet", {"depth": 110, "bottleneck": False}, 1_730_522),
    ("PreResNet", {"depth": 164}, 1_703_258),
    # Of 18 blocks in every stage, 6 and 12 are left.
    ("PreResNet", {"depth": 56}, 1_703_258 - 12 * BOTTLENECKS),
    ("PreResNet", {"depth": 110}, 1_703_258 - 6 * BOTTLENECKS),
    # 36.5 million in the paper, and exactly in pytorchcv.
    ("WideResNet28x10", {}, 36_479_194),
    # The convolutions as published, and one dense layer.
    ("VGG16", {}, VGG_CONVOLUTIONS + (2 * 512 + 1) * 1000),
    # The convolutions as published with biases, norms, three dense layers.
    (
        "VGG16BN",
        {},
        VGG_CONVOLUTIONS + 2 * 4224 + 2 * (512 * 512 + 512) + 5130,
    ),
    (
        "VGG16BN",
        {"batch_norm": False},
        VGG_CONVOLUTIONS + 2 * (512 * 512 + 512) + 5130,
    ),
    # torchvision.
    ("DenseNet161", {}, 28_681_000),
    # 0.8 million in table 2 of the paper, and exactly in pytorchcv.
    ("DenseNet", {"blocks": (16, 16, 16)}, 769_162),
    # "About 250k" in the paper: four hidden layers and five heads.
    ("MultiHeadMLP", {}, 785 * 200 + 3 * 201 * 200 + 5 * 201 * 2),
]


def count(model):
    return sum(int(np.prod(v.shape)) for v in model.trainable_variables)


def images(shape=SHAPE, batch=4):
    x = np.random.default_rng(0).normal(size=(batch, *shape))
    return x.astype("float32")


@functools.cache
def small(name, shape=SHAPE):
    make = getattr(applications, name)
    return make(input_shape=shape, classes=3, **SMALL[name])


def test_every_network_is_in_the_table():
    assert set(SMALL) | PRESETS == set(applications.__all__)


def test_guide_states_these_numbers():
    page = GUIDE.read_text()
    stated = re.findall(r"\| `(\w+)\((.*)\)` \| ([\d,]+) \|", page)
    assert len(stated) == 13
    counted = {(name, number) for name, _, number in COUNTS}
    for name, _, number in stated:
        number = int(number.replace(",", ""))
        # Those of these two are counted in files of their own.
        if name.startswith("ResNetPlusPlus") or name == "PreActResNet18":
            assert f"{number:,}" in getattr(applications, name).__doc__
        else:
            assert (name, number) in counted


@pytest.mark.parametrize("name, arguments, expected", COUNTS)
def test_number_of_weights_is_the_published_one(name, arguments, expected):
    make = getattr(applications, name)
    # Variables without values, which take most of the time.
    with keras.StatelessScope(initialize_variables=False):
        model = make(**arguments)
    assert count(model) == expected
    stated = f"{expected:,}"
    assert stated in make.__doc__ or "input_shape" in arguments


@pytest.mark.parametrize("name", SMALL)
def test_logits_at_initialisation_are_of_order_one(name):
    # Of smaller images padding is most of what the last convolutions see.
    model = small(name, (32, 32, 3))
    assert isinstance(model, bdl.Model)
    assert model.output_shape == (None, 3)
    logits = np.asarray(model(images((32, 32, 3), 16), training=True))
    assert logits.shape == (16, 3)
    assert 0.05 < np.std(logits) < 10


@pytest.mark.parametrize("name", SMALL)
def test_every_kernel_is_converted(name):
    model = small(name)
    if name == "ResNetPlusPlus":  # layers that have no distributions
        kind, new, options = "mc_dropout", bdl.layers.MCDropout, {"rate": 0.1}
    else:
        kind, new = "mean_field", bdl.extend.MeanFieldLayer
        options = {"dataset_size": 100}
    before = [x.name for x in model.layers if isinstance(x, KERNELS)]
    converted = bdl.convert(model, kind, **options)
    after = [x.name for x in converted.layers if isinstance(x, new)]
    assert before and after == before
    assert not any(type(x) in KERNELS for x in converted.layers)
    x = images()
    np.testing.assert_allclose(converted(x), model(x), rtol=1e-4, atol=1e-5)
    assert np.isfinite(converted(x, training=True)).all()


@pytest.mark.parametrize("name", SMALL)
def test_saved_network_predicts_the_same(name, tmp_path):
    model = small(name)
    model.save(tmp_path / "network.keras")
    loaded = keras.models.load_model(tmp_path / "network.keras")
    x = images()
    np.testing.assert_array_equal(loaded(x), model(x))
    assert type(loaded) is type(model) and loaded.name == model.name


def kept(size):
    """Share of pixels, not padding, that a convolution of size 3 reads."""
    return ((3 * size - 2) / (3 * size)) ** 2


@pytest.mark.parametrize(
    "make, basic, projections",
    [
        (lambda: applications.PreResNet(20, filters=64), True, (0, 1, 1)),
        (
            lambda: applications.PreResNet(29, filters=32, bottleneck=True),
            False,
            (1, 1, 1),
        ),
        (lambda: applications.WideResNet(22, 4), True, (1, 1, 1)),
    ],
    ids=["basic", "bottleneck", "wide"],
)
def test_every_block_adds_one_to_the_residual_stream(make, basic, projections):
    # He's initialisation makes the mean square of what a convolution puts out
    # twice that of a rectified normal variable, 1/2; but for the padding.
    model = make()
    outputs = [model.get_layer("stem_conv").output]
    expected = [2 * kept(32)]
    for i, (size, project) in enumerate(
        zip((32, 16, 8), projections, strict=True), start=1
    ):
        stream = 1.0 if project else expected[-1]
        for j in (1, 2, 3):
            outputs.append(model.get_layer(f"stage{i}_block{j}_add").output)
            stream += kept(size) if basic else 1.0
            expected.append(stream)
    streams = keras.Model(model.input, outputs)(
        images((32, 32, 3), batch=8), training=True
    )
    squares = [np.mean(np.square(x)) for x in streams]
    np.testing.assert_allclose(squares, expected, rtol=0.2)


def test_every_layer_of_a_densenet_adds_channels_of_one_scale():
    model = applications.DenseNet((4, 4, 4), growth_rate=24)
    added = [
        [
            model.get_layer(f"block{i}_layer{j}_conv2").output
            for j in range(1, 5)
        ]
        for i in (1, 2, 3)
    ]
    values = keras.Model(model.input, added)(
        images((32, 32, 3), batch=8), training=True
    )
    squares = [np.mean(np.square(block)) for block in values]
    expected = [kept(size) for size in (32, 16, 8)]
    np.testing.assert_allclose(squares, expected, rtol=0.15)
