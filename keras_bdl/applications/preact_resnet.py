"""Residual networks whose activations come before the convolutions."""

import functools

import keras

from keras_bdl.applications.architecture import RESNET_18
from keras_bdl.applications.architecture import Architecture
from keras_bdl.applications.residual_stages import classifier
from keras_bdl.applications.residual_stages import convolution
from keras_bdl.applications.residual_stages import residual_stages
from keras_bdl.models import Model


def PreActResNet(
    depth: int | Architecture,
    input_shape=(32, 32, 3),
    classes: int = 10,
    filters: int = 16,
    activation="relu",
    include_top: bool = True,
    classifier_activation=None,
    dropout_rate: float = 0.0,
    name: str | None = None,
):
    """Makes a residual network with pre-activation, with BatchNorm.

    A block is

        x + conv(f(norm(conv(f(norm(x))))))                               (1)

    with an activation f; where it changes the shape, a convolution of size 1
    takes f(norm(x)) to the new shape in place of x. Nothing else stands on
    the way from the first convolution to the last norm and activation, the
    average over the image and the classifier. Convolutions have no biases.

    `PreResNet` and `WideResNet` are such networks, too.

    Args:
        depth: 6n + 2, such as 20, 56 or 110: three stages of n blocks. Or an
            `Architecture`, whose branches may have three convolutions.
        input_shape: Shape of an image; height and width may be `None`.
            Defaults to `(32, 32, 3)`.
        classes: Number of classes. Defaults to `10`.
        filters: Filters of the first stage; each later stage has twice as
            many. Defaults to `16`.
        activation: f in (1), as Keras takes it. `"softplus"` for objectives
            that need a second derivative. Defaults to `"relu"`.
        include_top: Whether to end in the average over the image and the
            classifier. Defaults to `True`.
        classifier_activation: Activation of the classifier. Defaults to
            `None`, logits.
        dropout_rate: Rate of a dropout inside the branches, before every
            convolution but the first. Defaults to `0.0`, no dropout.
        name: Name of the model. Defaults to `None`:
            `"preact_resnet_<depth>"`.

    Returns:
        A `keras_bdl.Model`. There are no pretrained weights.

    Example:

    ```python
    model = keras_bdl.applications.PreActResNet(20, classes=100)
    model.compile(
        keras_bdl.VOGN(),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    )
    ```

    Reference:
        - He et al., [Identity Mappings in Deep Residual Networks](
          https://arxiv.org/abs/1603.05027)
    """
    if not isinstance(depth, Architecture):
        depth = Architecture.of_depth(depth)
    stem = depth.stem
    inputs = keras.Input(input_shape)
    x = convolution(
        inputs, filters, stem.kernel_size, stem.strides, "stem_conv"
    )
    block = functools.partial(_block, depth.branch, activation, dropout_rate)
    x = residual_stages(x, depth, filters, block)
    x = _activated(x, activation, "last")
    if include_top:
        x = classifier(x, classes, classifier_activation)
    return Model(inputs, x, name=name or f"preact_resnet_{depth.depth}")


def PreActResNet18(
    input_shape=(32, 32, 3), classes: int = 10, filters: int = 64, **kwargs
):
    """Makes the network of depth 18 for small images.

    Four stages of two blocks. With the defaults it has 11,172,170 trainable
    weights.

    Args:
        input_shape: See `PreActResNet`. Defaults to `(32, 32, 3)`.
        classes: See `PreActResNet`. Defaults to `10`.
        filters: See `PreActResNet`. Defaults to `64`.
        **kwargs: As of `PreActResNet`.

    Returns:
        A `keras_bdl.Model`.

    Example:

    ```python
    model = keras_bdl.applications.PreActResNet18(activation="softplus")
    ```
    """
    return PreActResNet(RESNET_18, input_shape, classes, filters, **kwargs)


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
