"""Functions that make the layers of several residual networks."""

import functools
from collections.abc import Callable
from typing import Any

import keras

from keras_bdl._aliases import Activation
from keras_bdl.applications._architecture import Architecture
from keras_bdl.applications._architecture import Stem


def residual_stages(
    x: Any, architecture: Architecture, filters: int, block: Callable
) -> Any:
    """Applies the pooling of the stem, if present, and all blocks.

    Args:
        x: Output of the convolution of the stem.
        architecture: The architecture.
        filters: Number of filters of the first stage.
        block: Function that applies one block. Its arguments are x, the width
            of the stage, the strides, whether the block changes the shape, and
            a name.
    """
    x = stem_pooling(x, architecture.stem)
    for i, stage in enumerate(architecture.stages, start=1):
        width = filters * stage.width
        outputs = width * architecture.branch[-1].expansion
        for j in range(1, stage.blocks + 1):
            strides = stage.strides if j == 1 else 1
            project = strides != 1 or x.shape[-1] != outputs
            x = block(x, width, strides, project, f"stage{i}_block{j}")
    return x


def stem_pooling(x: Any, stem: Stem) -> Any:
    """Applies the pooling of the stem, if present.

    Args:
        x: Output of the convolution of the stem.
        stem: The stem.
    """
    if not stem.pool_size:
        return x
    return keras.layers.MaxPooling2D(
        stem.pool_size, strides=2, padding="same", name="stem_pool"
    )(x)


def classifier(x: Any, classes: int, activation: Activation) -> Any:
    """Applies global average pooling, then a dense layer.

    Args:
        x: Features of an image.
        classes: Number of classes.
        activation: Activation of the dense layer.
    """
    x = keras.layers.GlobalAveragePooling2D(name="avg_pool")(x)
    return keras.layers.Dense(classes, activation, name="predictions")(x)


def convolution(
    x: Any, filters: int, size: int, strides: int, name: str
) -> Any:
    """Applies a convolution without bias, for networks with BatchNorm.

    Args:
        x: Images.
        filters: Number of filters.
        size: Height and width of the filters.
        strides: Strides.
        name: Name of the layer.
    """
    return keras.layers.Conv2D(
        filters,
        size,
        strides,
        "same",
        use_bias=False,
        kernel_initializer="he_normal",
        name=name,
    )(x)


def residual_features(
    x: Any,
    architecture: Architecture,
    *,
    filters: int,
    branch_scale: float,
    convolution: Callable,
) -> Any:
    """Applies stem, residual blocks and a last SELU.

    Args:
        x: Images.
        architecture: The architecture.
        filters: Number of filters of the first stage.
        branch_scale: Initial scale of the last convolution of a branch.
        convolution: Function that makes a `WeightNormConv2D`.
    """
    stem = architecture.stem
    x = convolution(
        filters,
        stem.kernel_size,
        strides=stem.strides,
        scale_initializer=keras.initializers.Constant(stem.scale),
        name="stem_conv",
    )(x)
    block = functools.partial(
        _block, architecture.branch, branch_scale, convolution
    )
    x = residual_stages(x, architecture, filters, block)
    return keras.layers.Activation("selu", name="selu")(x)


def _block(branch, branch_scale, convolution, x, width, strides, project, name):
    # No SELU follows the sum. At depth 110, x would pass through 54 of them.
    # Each SELU multiplies positive values by 1.05, so the variance would grow
    # to 30.
    y = keras.layers.Activation("selu", name=f"{name}_selu")(x)
    if project:
        x = convolution(
            width * branch[-1].expansion,
            1,
            strides=strides,
            use_bias=False,  # the branch already has a bias
            name=f"{name}_projection",
        )(y)
    for k, layer in enumerate(branch, start=1):
        last = k == len(branch)
        y = convolution(
            width * layer.expansion,
            layer.kernel_size,
            strides=strides if layer.strided else 1,
            activation=None if last else "selu",
            scale_initializer=keras.initializers.Constant(
                branch_scale if last else 1.0
            ),
            name=f"{name}_conv{k}",
        )(y)
    return keras.layers.Add(name=f"{name}_add")([x, y])
