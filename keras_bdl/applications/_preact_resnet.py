"""Residual networks with activations before the convolutions."""

import functools
from typing import Any

import keras

from keras_bdl._aliases import Activation
from keras_bdl._aliases import ImageShape
from keras_bdl._inherited_arguments import inherits_arguments
from keras_bdl.applications._architecture import RESNET_18
from keras_bdl.applications._architecture import Architecture
from keras_bdl.applications._residual_stages import classifier
from keras_bdl.applications._residual_stages import convolution
from keras_bdl.applications._residual_stages import residual_stages
from keras_bdl.models import Model


def PreActResNet(
    depth: int | Architecture,
    input_shape: ImageShape = (32, 32, 3),
    classes: int = 10,
    *,
    filters: int = 16,
    activation: Activation = "relu",
    include_top: bool = True,
    classifier_activation: Activation = None,
    dropout_rate: float = 0.0,
    name: str | None = None,
) -> Model:
    """Makes a residual network with pre-activation and BatchNorm.

    Use it for small images. `PreResNet` and `WideResNet` are special cases of
    this network. A block is

        x + conv(f(norm(conv(f(norm(x))))))                               (1)

    with an activation f. If a block changes the shape, a convolution of size 1
    maps f(norm(x)) to the new shape and replaces x. The network begins with a
    convolution and ends with norm, activation, global average pooling and the
    classifier. Convolutions have no biases.

    Args:
        depth: 6n + 2, such as 20, 56 or 110, for three stages of n blocks. Or
            an `Architecture`, whose branches may have three convolutions.
        input_shape: Shape of an image. Height and width may be `None`.
            Defaults to `(32, 32, 3)`.
        classes: Number of classes. Defaults to `10`.
        filters: Number of filters of the first stage. Each later stage
            doubles the number. Defaults to `16`.
        activation: f in (1). Use `"softplus"` with objectives that need a
            second derivative. Defaults to `"relu"`.
        include_top: Whether to add the global average pooling and the
            classifier. Defaults to `True`.
        classifier_activation: Activation of the classifier. Defaults to
            `None`, logits.
        dropout_rate: Rate of a dropout inside the branches, before every
            convolution of a branch except the first. Defaults to `0.0`, no
            dropout.
        name: Name of the model. Defaults to `None`,
            `"preact_resnet_<depth>"`.

    Returns:
        A `keras_bdl.Model`. The weights start at random.

    Example:

    ```python
    model = keras_bdl.applications.PreActResNet(8, (8, 8, 1), filters=2)
    model.compile(keras_bdl.VOGN(), loss)
    ```

    Reference:
        - He et al., [Identity Mappings in Deep Residual Networks](
          https://arxiv.org/abs/1603.05027)
    """
    if isinstance(depth, Architecture):
        architecture = depth
    else:
        architecture = Architecture.of_depth(depth)
    stem = architecture.stem
    inputs = keras.Input(input_shape)
    x = convolution(
        inputs, filters, stem.kernel_size, stem.strides, "stem_conv"
    )
    block = functools.partial(
        _block, architecture.branch, activation, dropout_rate
    )
    x = residual_stages(x, architecture, filters, block)
    x = _activated(x, activation, "last")
    if include_top:
        x = classifier(x, classes, classifier_activation)
    return Model(inputs, x, name=name or f"preact_resnet_{architecture.depth}")


@inherits_arguments(PreActResNet, without=("depth",))
def PreActResNet18(
    input_shape: ImageShape = (32, 32, 3),
    classes: int = 10,
    *,
    filters: int = 64,
    **options: Any,
) -> Model:
    """Makes the residual network of depth 18 with pre-activation.

    The network has four stages of two blocks, for small images. With the
    defaults, the network has 11,172,170 trainable weights.

    Args:
        input_shape: Shape of an image. Height and width may be `None`.
            Defaults to `(32, 32, 3)`.
        classes: Number of classes. Defaults to `10`.
        filters: Number of filters of the first stage. Each later stage
            doubles the number. Defaults to `64`.
        **options: Other arguments of `PreActResNet`.

    Returns:
        A `keras_bdl.Model`. The weights start at random.

    Example:

    ```python
    model = keras_bdl.applications.PreActResNet18(
        filters=4, activation="softplus"
    )
    ```
    """
    return PreActResNet(
        RESNET_18, input_shape, classes, filters=filters, **options
    )


def _block(branch, activation, dropout_rate, x, width, strides, project, name):
    """Applies (1)."""
    y = _activated(x, activation, f"{name}_1")
    outputs = width * branch[-1].expansion
    if project:
        x = convolution(y, outputs, 1, strides, f"{name}_projection")
    for k, layer in enumerate(branch, start=1):
        if k > 1:
            y = _activated(y, activation, f"{name}_{k}")
            if dropout_rate:
                y = keras.layers.Dropout(
                    dropout_rate, name=f"{name}_dropout{k}"
                )(y)
        y = convolution(
            y,
            width * layer.expansion,
            layer.kernel_size,
            strides if layer.strided else 1,
            f"{name}_conv{k}",
        )
    return keras.layers.Add(name=f"{name}_add")([x, y])


def _activated(x, activation, name):
    x = keras.layers.BatchNormalization(name=f"{name}_norm")(x)
    return keras.layers.Activation(activation, name=f"{name}_activation")(x)
