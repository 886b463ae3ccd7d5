"""VGG-16 with fewer and smaller dense layers than the published network."""

from collections.abc import Sequence
from typing import Any

import keras

from keras_bdl._aliases import Activation
from keras_bdl._aliases import ImageShape
from keras_bdl._arguments import did_you_mean
from keras_bdl._inherited_arguments import inherits_arguments
from keras_bdl.models import Model

# For each stage: number of convolutions, and their filters as a multiple of the
# argument `filters`. A max pooling follows each stage.
STAGES = ((2, 1), (2, 2), (3, 4), (3, 8), (3, 8))
POOLINGS = {
    "avg": keras.layers.GlobalAveragePooling2D,
    "max": keras.layers.GlobalMaxPooling2D,
}


def VGG16(
    input_shape: ImageShape = (224, 224, 3),
    classes: int = 1000,
    *,
    filters: int = 64,
    include_top: bool = True,
    classifier_activation: Activation = None,
    name: str | None = None,
    batch_norm: bool = False,
    pooling: str | Sequence[str] = ("avg", "max"),
    hidden_units: Sequence[int] = (),
    dropout_rate: float = 0.0,
    pool_padding: str = "valid",
) -> Model:
    """Makes a VGG-16 whose classifier reads means and maxima over the image.

    Use it with `keras_bdl.convert` to repeat the Radial paper. The network has
    thirteen convolutions with ReLU and five max poolings. One dense layer reads
    the mean and the maximum of every channel. The network has no BatchNorm. The
    published VGG-16 has three dense layers, which hold nine tenths of its
    weights.

    The Radial paper uses 46 filters, because a Bayesian network has a mean and
    a scale for each weight. With 46 filters, these are about as many numbers as
    the weights of the network with 64 filters. The SWAG paper uses other dense
    layers, see `VGG16BN`.

    Args:
        input_shape: Shape of an image. Height and width may be `None`.
            Defaults to `(224, 224, 3)`.
        classes: Number of classes. Defaults to `1000`.
        filters: Number of filters of the first stage. The later stages have 2,
            4, 8 and 8 times this number. Defaults to `64`: 15,739,688 weights,
            14,714,688 of them in the convolutions.
        include_top: Whether to add the poolings over the image and the
            classifier. Defaults to `True`.
        classifier_activation: Activation of the classifier. Defaults to
            `None`, logits.
        name: Name of the model. Defaults to `None`: `"vgg_16"`, or
            `"vgg_16_bn"` with `batch_norm`.
        batch_norm: Whether to add a BatchNorm between a convolution and its
            ReLU. Defaults to `False`.
        pooling: `"avg"` or `"max"` over the image, or a tuple of both.
            Defaults to `("avg", "max")`.
        hidden_units: Number of units of dense layers with ReLU before the
            classifier. Defaults to `()`, no such layers.
        dropout_rate: Rate of a dropout before each layer of `hidden_units`.
            Defaults to `0.0`, no dropout.
        pool_padding: Padding of the max poolings. `"valid"` needs a height and
            width of at least 32 pixels. `"same"` accepts images of any size.
            Defaults to `"valid"`.

    Returns:
        A `keras_bdl.Model`. The weights start at random.

    Example:

    ```python
    network = keras_bdl.applications.VGG16((32, 32, 3), 2, filters=2)
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


@inherits_arguments(VGG16)
def VGG16BN(
    input_shape: ImageShape = (32, 32, 3),
    classes: int = 10,
    *,
    batch_norm: bool = True,
    pooling: str | Sequence[str] = "avg",
    hidden_units: Sequence[int] = (512, 512),
    dropout_rate: float = 0.5,
    pool_padding: str = "same",
    **options: Any,
) -> Model:
    """Makes a VGG-16 with BatchNorm for small images.

    Use it to repeat the experiments of the SWAG paper. The poolings of `VGG16`
    reduce 32 x 32 pixels to one. Two dense layers with ReLU follow, with a
    dropout before each, and then the classifier. With the defaults, the network
    has 15,253,578 trainable weights.

    The SWAG paper says only "VGG-16". The code of the paper defines the layers,
    with and without BatchNorm. The commands for the tables of the paper use no
    BatchNorm. To repeat the tables, pass `batch_norm=False`: the network then
    has 15,245,130 weights.

    Args:
        input_shape: Shape of an image. Height and width may be `None`.
            Defaults to `(32, 32, 3)`.
        classes: Number of classes. Defaults to `10`.
        batch_norm: Whether to add a BatchNorm between a convolution and its
            ReLU. Defaults to `True`.
        pooling: `"avg"` or `"max"` over the image, or a tuple of both.
            Defaults to `"avg"`.
        hidden_units: Number of units of dense layers with ReLU before the
            classifier. Defaults to `(512, 512)`.
        dropout_rate: Rate of a dropout before each layer of `hidden_units`.
            Defaults to `0.5`.
        pool_padding: Padding of the max poolings. `"valid"` needs a height and
            width of at least 32 pixels. `"same"` accepts images of any size.
            Defaults to `"same"`.
        **options: Other arguments of `VGG16`.

    Returns:
        A `keras_bdl.Model`. The weights start at random.

    Example:

    ```python
    model = keras_bdl.applications.VGG16BN(classes=100, filters=2)
    ```

    Reference:
        - Maddox et al., [A Simple Baseline for Bayesian Uncertainty in Deep
          Learning](https://arxiv.org/abs/1902.02476), section 5
    """
    return VGG16(
        input_shape,
        classes,
        batch_norm=batch_norm,
        pooling=pooling,
        hidden_units=hidden_units,
        dropout_rate=dropout_rate,
        pool_padding=pool_padding,
        **options,
    )


def _convolution(x, filters, batch_norm, name):
    # The convolutions have biases even if a BatchNorm follows.
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
            f"{did_you_mean(pooling, POOLINGS)}Received: pooling={pooling!r}"
        )
