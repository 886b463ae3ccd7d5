"""Residual networks with activations after the convolutions."""

import dataclasses
import functools
from typing import Any
from typing import Unpack

import keras

from keras_bdl._aliases import Activation
from keras_bdl._aliases import ImageShape
from keras_bdl._models import Model
from keras_bdl.applications._residual_network import IMAGENET
from keras_bdl.applications._residual_network import RESNET_18
from keras_bdl.applications._residual_network import Architecture
from keras_bdl.applications._residual_network import Convolution
from keras_bdl.applications._residual_network import NetworkOptions
from keras_bdl.applications._residual_network import Stem
from keras_bdl.applications._residual_network import architecture_of
from keras_bdl.applications._residual_network import classifier
from keras_bdl.applications._residual_network import convolution
from keras_bdl.applications._residual_network import residual_stages


def ResNet(
    depth: int | Architecture,
    input_shape: ImageShape = (32, 32, 3),
    classes: int = 10,
    *,
    filters: int = 16,
    activation: Activation = "relu",
    include_top: bool = True,
    classifier_activation: Activation = None,
    name: str | None = None,
) -> Model:
    """Makes a residual network with BatchNorm, as first published.

    Use it for small images. `ResNet18` is the network for ImageNet. A block is

        f(x + norm(conv(f(norm(conv(x))))))                               (1)

    with an activation f. If a block changes the shape, a convolution of size 1
    and a norm map x to the new shape. The network begins with a convolution,
    norm and activation, and ends with global average pooling and the
    classifier. Convolutions have no biases.

    With the defaults, depth 20 has 272,474 trainable weights, 32 has 466,906,
    44 has 661,338, 56 has 855,770 and 110 has 1,730,714.

    Args:
        depth: 6n + 2, such as 20, 56 or 110, for three stages of n blocks. Or
            an `Architecture`, whose branches may have three convolutions.
        input_shape: Shape of an image. Height and width may be `None`.
            Defaults to `(32, 32, 3)`.
        classes: Number of classes. Defaults to `10`.
        filters: Number of filters of the first stage. Each later stage
            doubles the number. Defaults to `16`.
        activation: f in (1). Defaults to `"relu"`.
        include_top: Whether to add the global average pooling and the
            classifier. Defaults to `True`.
        classifier_activation: Activation of the classifier. Defaults to
            `None`, logits.
        name: Name of the model. Defaults to `None`, `"resnet_<depth>"`.

    Example:

    ```python
    model = keras_bdl.applications.ResNet(8, (8, 8, 1), filters=2)
    model.compile(keras_bdl.VOGN(), loss)
    ```

    Reference:
        - He et al., [Deep Residual Learning for Image Recognition](
          https://arxiv.org/abs/1512.03385). The networks of the paper for
          small images change the shape without a convolution.
    """
    architecture = architecture_of(depth)
    stem = architecture.stem
    inputs = keras.Input(input_shape)
    x = convolution(
        inputs, filters, stem.kernel_size, stem.strides, "stem_conv"
    )
    x = _norm(x, "stem_conv")
    x = keras.layers.Activation(activation, name="stem_activation")(x)
    block = functools.partial(_block, architecture.branch, activation)
    x = residual_stages(x, architecture, filters, block)
    if include_top:
        x = classifier(x, classes, classifier_activation)
    return Model(inputs, x, name=name or f"resnet_{architecture.depth}")


def ResNet18(
    input_shape: ImageShape = (224, 224, 3),
    classes: int = 1000,
    *,
    filters: int = 64,
    stem: Stem = IMAGENET,
    **options: Unpack[NetworkOptions],
) -> Model:
    """Makes the residual network of depth 18 for ImageNet.

    The network has four stages of two blocks. With the defaults the network has
    11,689,512 trainable weights.

    Args:
        input_shape: Shape of an image. Defaults to `(224, 224, 3)`.
        classes: Number of classes. Defaults to `1000`.
        filters: Number of filters of the first stage. Each later stage
            doubles the number. Defaults to `64`.
        stem: The layers before the first block. For small images, use
            `keras_bdl.extend.SMALL_IMAGES`, a convolution of size
            3. Defaults to `keras_bdl.extend.IMAGENET`, a
            convolution of size 7 and a max pooling, which leave a sixteenth of
            the pixels.
        **options: Other arguments of `ResNet`.

    Example:

    ```python
    small = keras_bdl.extend.SMALL_IMAGES
    model = keras_bdl.applications.ResNet18(
        (32, 32, 3), 10, filters=4, stem=small
    )
    ```
    """
    architecture = dataclasses.replace(RESNET_18, stem=stem)
    return ResNet(
        architecture, input_shape, classes, filters=filters, **options
    )


def _block(
    branch: tuple[Convolution, ...],
    activation: Activation,
    x: Any,
    width: int,
    strides: int,
    project: bool,
    name: str,
) -> Any:
    """Applies (1)."""
    y = x
    outputs = width * branch[-1].expansion
    if project:
        x = convolution(x, outputs, 1, strides, f"{name}_projection")
        x = _norm(x, f"{name}_projection")
    for k, layer in enumerate(branch, start=1):
        conv = f"{name}_conv{k}"
        y = convolution(
            y,
            width * layer.expansion,
            layer.kernel_size,
            strides if layer.strided else 1,
            conv,
        )
        y = _norm(y, conv)
        if k < len(branch):
            y = keras.layers.Activation(activation, name=f"{conv}_activation")(
                y
            )
    y = keras.layers.Add(name=f"{name}_add")([x, y])
    return keras.layers.Activation(activation, name=f"{name}_activation")(y)


def _norm(x: Any, name: str) -> Any:
    return keras.layers.BatchNormalization(name=f"{name}_norm")(x)
