"""The stages of residual networks."""

import functools

import keras


def residual_stages(x, architecture, filters, block):
    """Applies the pooling of the stem, if it has one, and all blocks.

    Args:
        x: What the convolution of the stem made of the images.
        architecture: The `Architecture`.
        filters: Filters of the first stage.
        block: Takes x, the width of the stage, the strides, whether the block
            changes the shape, and a name.
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


def stem_pooling(x, stem):
    """Applies the pooling of the stem, if it has one.

    Args:
        x: What the convolution of the stem made of the images.
        stem: The `Stem`.
    """
    if not stem.pool_size:
        return x
    return keras.layers.MaxPooling2D(
        stem.pool_size, strides=2, padding="same", name="stem_pool"
    )(x)


def classifier(x, classes, activation):
    """Applies the average over the image and a dense layer.

    Args:
        x: Features of an image.
        classes: Number of classes.
        activation: As Keras takes it.
    """
    x = keras.layers.GlobalAveragePooling2D(name="avg_pool")(x)
    return keras.layers.Dense(classes, activation, name="predictions")(x)


def convolution(x, filters, size, strides, name):
    """Applies a convolution without bias, for a norm to follow.

    Args:
        x: Images.
        filters: Number of filters.
        size: Their height and width.
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


def residual_features(x, architecture, filters, branch_scale, convolution):
    """Applies stem, residual blocks and a last SELU.

    Args:
        x: Images.
        architecture: The `Architecture`.
        filters: Filters of the first stage.
        branch_scale: Initial scale of the last convolution of a branch.
        convolution: Makes a `WeightNormConv2D` of its arguments.
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
    # No SELU on the sum: at depth 110 the identity would pass 54 of them,
    # each multiplies what is positive by 1.05, and the variance ends at 30.
    y = keras.layers.Activation("selu", name=f"{name}_selu")(x)
    if project:
        x = convolution(
            width * branch[-1].expansion,
            1,
            strides=strides,
            use_bias=False,  # the branch has one for the same sum
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
