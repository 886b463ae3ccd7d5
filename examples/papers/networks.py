"""The networks of the papers."""

import dataclasses
from collections.abc import Callable

import keras
import numpy as np
from substitutes import SUBSTITUTES
from substitutes import one_layer

import keras_bdl as bdl
from keras_bdl import applications
from keras_bdl.extend import SMALL_IMAGES
from keras_bdl.extend import StoragePath


@dataclasses.dataclass(frozen=True)
class Network:
    """A network of a paper.

    Attributes:
        make: A function that returns the network, or the name of a function
            of `keras_bdl.applications`.
        substitute: Name of the network in `SUBSTITUTES` that replaces this
            network on digits.
        arguments: Arguments of the function.
        medium: The substitute at the scale `medium`. Defaults to `None`, for a
            network that no recipe has at this scale.
    """

    make: Callable | str
    substitute: str
    arguments: dict = dataclasses.field(default_factory=dict)
    medium: str | None = None


_PRE_RESNETS = {
    f"PreResNet-{depth}": Network(
        "PreResNet",
        "PreActResNet-8",
        {"depth": depth},
        "strided PreActResNet-20",
    )
    for depth in (56, 110, 164)
}
_RADIAL = Network(
    "VGG16",
    "convolutions, global pooling",
    medium="strided convolutions, global pooling",
)
# Networks by their names in the papers.
NETWORKS = {
    "LeNet-5": Network("LeNet5", "convolutions", medium="LeNet-5"),
    "AlexNet": Network("AlexNet", "wide convolutions"),
    "ResNet-18": Network("ResNet18", "ResNet-8"),
    "VGG-16": Network(
        "VGG16BN",
        "convolutions with BatchNorm",
        medium="three convolutions with BatchNorm",
    ),
    **_PRE_RESNETS,
    "WideResNet-28-10": Network("WideResNet28x10", "wide PreActResNet-8"),
    "DenseNet-161": Network("DenseNet161", "convolutions with BatchNorm"),
    "ResNet-152": Network(
        keras.applications.ResNet152,
        "ResNet-8",
        {"classifier_activation": None},
    ),
    "radial/VGG-16": _RADIAL,
    "small VGG": _RADIAL,
    "VGG-16, 5/8 of the channels": _RADIAL,
    "MLP 1 x 200": Network(one_layer, "one layer"),
    "PreActResNet-18": Network(
        "PreActResNet18",
        "PreActResNet-8, softplus",
        {"activation": "softplus"},
        "strided PreActResNet-8, softplus",
    ),
    "ResNet-56++": Network(
        "ResNetPlusPlus56", "ResNet++-8", medium="strided ResNet++-8"
    ),
    "ResNet-50++": Network(
        "ResNetPlusPlus50", "ResNet++-8", medium="strided ResNet++-8"
    ),
    "ResNet-56": Network(
        "ResNet", "ResNet-8", {"depth": 56}, "strided ResNet-8"
    ),
    "ResNet-50": Network(
        keras.applications.ResNet50,
        "ResNet-8",
        {"classifier_activation": None},
        "strided ResNet-8",
    ),
}
# For images smaller than this, a ResNet-18 has another first layer.
SMALL = 64


def used(cell, scale):
    """Returns the name of the network of a cell at a scale.

    Args:
        cell: The `Cell`.
        scale: The scale.
    """
    if scale == "smoke":
        return "tiny"
    if scale == "paper":
        return cell.network
    network = _named(cell)
    if scale == "small":
        return network.substitute
    if network.medium is None:
        raise SystemExit(
            f"The network {cell.network!r} has no substitute at the scale "
            f"{scale!r}. Name one in `networks.py`."
        )
    return network.medium


def _named(cell):
    """Returns the network of a cell.

    The same name may stand for different networks in different papers, so the
    name with the paper is tried first.
    """
    for name in (f"{cell.paper}/{cell.network}", cell.network):
        if name in NETWORKS:
            return NETWORKS[name]
    raise SystemExit(
        f"There is no network {cell.network!r}, only {', '.join(NETWORKS)}."
    )


def make(cell, data, scale, settings, data_dir=None):
    """Makes the network of a cell.

    Args:
        cell: The `Cell`.
        data: The `Data`.
        scale: The scale.
        settings: The `Settings`.
        data_dir: Folder of the weights that Keras does not have.
    """
    shapes = {"input_shape": data.input_shape, "classes": data.classes}
    if scale != "paper":
        model = SUBSTITUTES[used(cell, scale)](**shapes)
    else:
        model = _of_paper(cell, shapes, settings, data_dir)
    if not settings.batch_norm:
        model = _without_batch_norm(model)
    _take_conventions(model, settings)
    if isinstance(model, bdl.Model):
        return model
    return bdl.Model(model.inputs, model.outputs)


def _of_paper(cell, shapes, settings, data_dir):
    network = _named(cell)
    arguments, make = dict(network.arguments), network.make
    if isinstance(make, str):
        if make == "ResNet18" and shapes["input_shape"][0] < SMALL:
            arguments["stem"] = SMALL_IMAGES
        arguments |= settings.given("filters")
        model = getattr(applications, make)(**shapes, **arguments)
        if settings.pretrained:
            _load(model, cell.network, data_dir)
        return model
    if make is one_layer:
        return make(**shapes, **arguments)
    arguments |= shapes
    return _of_keras(make, cell.network, settings.pretrained, arguments)


def _load(model, name, data_dir):
    """Reads weights that Keras does not have from a file."""
    file = StoragePath(data_dir or ".") / f"{name}.weights.h5"
    if not file.exists():
        raise SystemExit(
            f"Keras has no pretrained weights of {name}. Give in `--data-dir` "
            f"the folder that has {file.name}, as `save_weights` writes it."
        )
    model.load_weights(str(file))


def _of_keras(make, name, pretrained, arguments):
    if not pretrained:
        return make(weights=None, **arguments)
    try:
        model = make(weights="imagenet", **arguments)
    except Exception as error:
        if "URL fetch failure" not in str(error):
            raise
        raise SystemExit(
            f"The pretrained weights of {name} are not on this machine, and "
            "there is no network to download them from."
        ) from error
    take_normalized(model.get_layer("conv1_conv"))
    return model


def take_normalized(layer):
    """Adapts a pretrained first convolution to the images of `data.py`.

    The pretrained networks of Keras expect images with the channels blue,
    green, red, and with pixels from 0 to 255 minus their means. See
    `keras.applications.resnet.preprocess_input`.

    Args:
        layer: A `Conv2D` with a bias. Its weights change.
    """
    spec = bdl.datasets.SPECS["imagenet2012"]
    kernel, bias = layer.get_weights()
    black = keras.applications.resnet.preprocess_input(np.zeros((1, 1, 1, 3)))
    kernel = kernel[:, :, ::-1]  # red first
    shift = 255 * np.array(spec.mean) + black.ravel()[::-1]
    scaled = kernel * (255 * np.array(spec.stddev))[:, None]
    bias = bias + np.einsum("xyio,i->o", kernel, shift)
    layer.set_weights([scaled, bias])


@keras.saving.register_keras_serializable(package="keras_bdl_papers")
class NoNormalization(keras.layers.Layer):
    """Layer that returns its inputs, in place of `BatchNormalization`.

    The call arguments are those of `BatchNormalization`.
    """

    def call(self, inputs, training=None, mask=None):
        """Returns the inputs."""
        return inputs


def _take_conventions(model, settings):
    """Sets BatchNorm and initial kernels as in the papers' libraries."""
    for layer in model.layers:
        if isinstance(layer, keras.layers.BatchNormalization):
            for name in ("momentum", "epsilon"):
                known = getattr(settings, f"batch_norm_{name}")
                if known is not None:
                    setattr(layer, name, known)
        if settings.kernel_initializer and hasattr(layer, "kernel"):
            draw = keras.initializers.get(settings.kernel_initializer)
            layer.kernel.assign(draw(layer.kernel.shape))


def _without_batch_norm(model):
    def copy(layer):
        if isinstance(layer, keras.layers.BatchNormalization):
            return NoNormalization(name=layer.name)
        return layer.__class__.from_config(layer.get_config())

    return keras.models.clone_model(model, clone_function=copy)
