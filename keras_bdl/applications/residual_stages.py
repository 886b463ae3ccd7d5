"""What the networks of stages have in common."""

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
