"""Residual networks whose activations come after the convolutions."""

import dataclasses
import functools

import keras

from keras_bdl.applications.architecture import RESNET_18
from keras_bdl.applications.architecture import Architecture
from keras_bdl.applications.architecture import Stem
from keras_bdl.applications.residual_stages import classifier
from keras_bdl.applications.residual_stages import convolution
from keras_bdl.applications.residual_stages import residual_stages
from keras_bdl.models import Model

SMALL_IMAGES = RESNET_18.stem
IMAGENET = Stem(7, strides=2, pool_size=3)


def ResNet(
    depth: int | Architecture,
    input_shape=(32, 32, 3),
    classes: int = 10,
    filters: int = 16,
    activation="relu",
    include_top: bool = True,
    classifier_activation=None,
    name: str | None = None,
):
    """Makes a residual network with BatchNorm, as they were first published.

    A block is

        f(x + norm(conv(f(norm(conv(x))))))                               (1)

    with an activation f; where it changes the shape, a convolution of size 1
    and a norm take x to the new shape. Before the blocks come a convolution,
    norm and activation, behind them the average over the image and the
    classifier. Convolutions have no biases.

    With the defaults, depth 20 has 272,474 trainable weights, 32 has 466,906,
    44 has 661,338, 56 has 855,770 and 110 has 1,730,714.

    Args:
        depth: 6n + 2, such as 20, 56 or 110: three stages of n blocks. Or an
            `Architecture`, whose branches may have three convolutions.
        input_shape: Shape of an image; height and width may be `None`.
            Defaults to `(32, 32, 3)`.
        classes: Number of classes. Defaults to `10`.
        filters: Filters of the first stage; each later stage has twice as
            many. Defaults to `16`.
        activation: f in (1), as Keras takes it. Defaults to `"relu"`.
        include_top: Whether to end in the average over the image and the
            classifier. Defaults to `True`.
        classifier_activation: Activation of the classifier. Defaults to
            `None`, logits.
        name: Name of the model. Defaults to `None`: `"resnet_<depth>"`.

    Returns:
        A `keras_bdl.Model`. There are no pretrained weights.

    Example:

    ```python
    model = keras_bdl.applications.ResNet(20, classes=100)
    model.compile(
        keras_bdl.VOGN(),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    )
    ```

    Reference:
        - He et al., [Deep Residual Learning for Image Recognition](
          https://arxiv.org/abs/1512.03385), with projections where shapes
          change, also for small images
    """
    if not isinstance(depth, Architecture):
        depth = Architecture.of_depth(depth)
    stem = depth.stem
    inputs = keras.Input(input_shape)
    x = convolution(
        inputs, filters, stem.kernel_size, stem.strides, "stem_conv"
    )
    x = _norm(x, "stem_conv")
    x = keras.layers.Activation(activation, name="stem_activation")(x)
    block = functools.partial(_block, depth.branch, activation)
    x = residual_stages(x, depth, filters, block)
    if include_top:
        x = classifier(x, classes, classifier_activation)
    return Model(inputs, x, name=name or f"resnet_{depth.depth}")


def ResNet18(
    input_shape=(224, 224, 3),
    classes: int = 1000,
    filters: int = 64,
    stem: Stem = IMAGENET,
    **kwargs,
):
    """Makes the network of depth 18.

    Four stages of two blocks. With the defaults, those of ImageNet, it has
    11,689,512 trainable weights.

    Args:
        input_shape: See `ResNet`. Defaults to `(224, 224, 3)`.
        classes: See `ResNet`. Defaults to `1000`.
        filters: See `ResNet`. Defaults to `64`.
        stem: What comes before the first block. Defaults to a convolution of
            size 7 and a max pooling, which leave a sixteenth of the pixels;
            for small images take `keras_bdl.applications.resnet.SMALL_IMAGES`,
            a convolution of size 3.
        **kwargs: As of `ResNet`.

    Returns:
        A `keras_bdl.Model`.

    Example:

    ```python
    from keras_bdl.applications.resnet import SMALL_IMAGES

    imagenet = keras_bdl.applications.ResNet18()
    cifar = keras_bdl.applications.ResNet18((32, 32, 3), 10, stem=SMALL_IMAGES)
    ```
    """
    architecture = dataclasses.replace(RESNET_18, stem=stem)
    return ResNet(architecture, input_shape, classes, filters, **kwargs)


def _block(branch, activation, x, width, strides, project, name):
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


def _norm(x, name):
    return keras.layers.BatchNormalization(name=f"{name}_norm")(x)
