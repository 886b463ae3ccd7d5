"""VGG-16, without the dense layers that hold most of its weights."""

import keras

from keras_bdl.models import Model

# Convolutions, and their filters as a multiple of those of the network; a
# max pooling follows each line.
STAGES = ((2, 1), (2, 2), (3, 4), (3, 8), (3, 8))
POOLINGS = {
    "avg": keras.layers.GlobalAveragePooling2D,
    "max": keras.layers.GlobalMaxPooling2D,
}


def VGG16(
    input_shape=(224, 224, 3),
    classes: int = 1000,
    filters: int = 64,
    include_top: bool = True,
    classifier_activation=None,
    name: str | None = None,
    batch_norm: bool = False,
    pooling=("avg", "max"),
    hidden_units=(),
    dropout_rate: float = 0.0,
    pool_padding: str = "valid",
):
    """Makes a VGG-16 that ends in the means and maxima over the image.

    Thirteen convolutions with ReLU, and five max poolings between them. The
    mean and the maximum of every channel, side by side, go into one dense
    layer; the published network has three, with nine tenths of its weights.
    There is no BatchNorm.

    It becomes Bayesian by `keras_bdl.convert`. The Radial paper takes 46
    filters then, with which mean and scale of all weights are about as many
    numbers as the weights of the network with 64 filters. The SWAG paper
    takes other dense layers, see `VGG16BN`.

    Args:
        input_shape: Shape of an image; height and width may be `None`.
            Defaults to `(224, 224, 3)`.
        classes: Number of classes. Defaults to `1000`.
        filters: Filters of the first stage; the later ones have 2, 4, 8 and
            8 times as many. Defaults to `64`, with which there are 15,739,688
            weights, 14,714,688 of them in the convolutions.
        include_top: Whether to end in the poolings and the classifier.
            Defaults to `True`.
        classifier_activation: Activation of the classifier. Defaults to
            `None`, logits.
        name: Name of the model. Defaults to `None`: `"vgg_16"`, or
            `"vgg_16_bn"`.
        batch_norm: Whether a BatchNorm stands between a convolution and its
            ReLU. Defaults to `False`.
        pooling: `"avg"` or `"max"` over the image, or a tuple of both.
            Defaults to `("avg", "max")`.
        hidden_units: Units of dense layers with ReLU before the classifier.
            Defaults to `()`: none.
        dropout_rate: Rate of a dropout before each of these layers. Defaults
            to `0.0`, no dropout.
        pool_padding: Of the max poolings. With `"valid"` images have 32
            pixels at least in height and width, with `"same"` any number.
            Defaults to `"valid"`.

    Returns:
        A `keras_bdl.Model`. There are no pretrained weights.

    Example:

    ```python
    network = keras_bdl.applications.VGG16((512, 512, 3), 2, filters=46)
    model = keras_bdl.convert(network, "radial")
    ```

    Reference:
        - Farquhar et al., [Radial Bayesian Neural Networks](
          https://arxiv.org/abs/1907.00865), appendix D.1
        - Simonyan and Zisserman, [Very Deep Convolutional Networks](
          https://arxiv.org/abs/1409.1556), configuration D
    """
    poolings = (pooling,) if isinstance(pooling, str) else tuple(pooling)
    _check(pooling, poolings)
    inputs = x = keras.Input(input_shape)
    for i, (convolutions, width) in enumerate(STAGES, start=1):
        for j in range(1, convolutions + 1):
            x = _convolution(
                x, filters * width, batch_norm, f"stage{i}_conv{j}"
            )
        x = keras.layers.MaxPooling2D(
            padding=pool_padding, name=f"stage{i}_pool"
        )(x)
    if include_top:
        pools = [POOLINGS[p](name=f"{p}_pool")(x) for p in poolings]
        x = pools[0]
        if len(pools) > 1:
            x = keras.layers.Concatenate(name="pools")(pools)
        for k, units in enumerate(hidden_units, start=1):
            if dropout_rate:
                x = keras.layers.Dropout(dropout_rate, name=f"dropout{k}")(x)
            x = keras.layers.Dense(
                units, "relu", kernel_initializer="he_normal", name=f"dense{k}"
            )(x)
        x = keras.layers.Dense(
            classes, classifier_activation, name="predictions"
        )(x)
    return Model(
        inputs, x, name=name or ("vgg_16_bn" if batch_norm else "vgg_16")
    )


def VGG16BN(
    input_shape=(32, 32, 3),
    classes: int = 10,
    filters: int = 64,
    batch_norm: bool = True,
    pooling="avg",
    hidden_units=(512, 512),
    dropout_rate: float = 0.5,
    pool_padding: str = "same",
    **kwargs,
):
    """Makes a VGG-16 with BatchNorm for small images.

    The convolutions of `VGG16` leave one pixel of 32 x 32. Two dense layers
    with ReLU and a dropout before each stand between it and the classifier.
    With the defaults it has 15,253,578 trainable weights.

    The SWAG paper says "VGG-16" and no more. These are the layers of its
    code, which has the network with BatchNorm and without, and whose commands
    for the tables take the one without: `batch_norm=False`, with 15,245,130
    weights.

    Args:
        input_shape: See `VGG16`. Defaults to `(32, 32, 3)`.
        classes: See `VGG16`. Defaults to `10`.
        filters: See `VGG16`. Defaults to `64`.
        batch_norm: See `VGG16`. Defaults to `True`.
        pooling: See `VGG16`. Defaults to `"avg"`.
        hidden_units: See `VGG16`. Defaults to `(512, 512)`.
        dropout_rate: See `VGG16`. Defaults to `0.5`.
        pool_padding: See `VGG16`. Defaults to `"same"`.
        **kwargs: As of `VGG16`.

    Returns:
        A `keras_bdl.Model`.

    Example:

    ```python
    model = keras_bdl.applications.VGG16BN(classes=100)
    ```

    Reference:
        - Maddox et al., [A Simple Baseline for Bayesian Uncertainty in Deep
          Learning](https://arxiv.org/abs/1902.02476), section 5
    """
    return VGG16(
        input_shape,
        classes,
        filters,
        batch_norm=batch_norm,
        pooling=pooling,
        hidden_units=hidden_units,
        dropout_rate=dropout_rate,
        pool_padding=pool_padding,
        **kwargs,
    )


def _convolution(x, filters, batch_norm, name):
    # With biases also before a norm, as in the network without one.
    x = keras.layers.Conv2D(
        filters,
        3,
        padding="same",
        activation=None if batch_norm else "relu",
        kernel_initializer="he_normal",
        name=name,
    )(x)
    if not batch_norm:
        return x
    x = keras.layers.BatchNormalization(name=f"{name}_norm")(x)
    return keras.layers.Activation("relu", name=f"{name}_activation")(x)


def _check(pooling, poolings):
    if not poolings or not set(poolings) <= set(POOLINGS):
        raise ValueError(
            f"`pooling` must be one of {sorted(POOLINGS)}, or a tuple of both. "
            f"Received: pooling={pooling!r}"
        )
