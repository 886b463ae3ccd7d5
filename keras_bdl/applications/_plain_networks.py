"""Networks without shortcuts: LeNet-5, AlexNet, VGG-16, dense layers."""

from collections.abc import Sequence
from typing import Any
from typing import TypedDict
from typing import Unpack

import keras

from keras_bdl._aliases import Activation
from keras_bdl._aliases import ImageShape
from keras_bdl._arguments import check_count
from keras_bdl._arguments import did_you_mean
from keras_bdl._models import Model

# Of AlexNet, for each convolution: size of the filters, their number as a
# multiple of the argument `filters`, strides, and whether a max pooling
# follows.
CONVOLUTIONS = (
    (11, 1, 4, True),
    (5, 3, 1, True),
    (3, 6, 1, False),
    (3, 4, 1, False),
    (3, 4, 1, True),
)
# Of VGG-16, for each stage: number of convolutions, and their filters as a
# multiple of the argument `filters`. A max pooling follows each stage.
STAGES = ((2, 1), (2, 2), (3, 4), (3, 8), (3, 8))
POOLINGS = {
    "avg": keras.layers.GlobalAveragePooling2D,
    "max": keras.layers.GlobalMaxPooling2D,
}


def LeNet5(
    input_shape: ImageShape = (32, 32, 3),
    classes: int = 10,
    *,
    activation: Activation = "relu",
    padding: str = "valid",
    classifier_activation: Activation = None,
    name: str | None = None,
) -> Model:
    """Makes a LeNet-5.

    Use LeNet-5 as a small, fast network for small images. LeNet-5 has two
    convolutions of size 5 with 6 and 16 filters, a max pooling after each, and
    dense layers of 120 and 84 units before the classifier. With the defaults
    the network has 62,006 weights.

    The VOGN paper says only "LeNet-5". This function makes the network of the
    paper's code, with ReLU and max pooling. Only the initialisation,
    `"he_normal"`, differs from the code. The original LeNet-5 has sigmoidal
    activations, average poolings with weights, and convolutions that read only
    some channels.

    Args:
        input_shape: Shape of an image. Defaults to `(32, 32, 3)`.
        classes: Number of classes. Defaults to `10`.
        activation: Activation of all layers but the last. Defaults to
            `"relu"`.
        padding: Padding of the convolutions. `"valid"` needs a height and
            width of at least 16 pixels. `"same"` accepts smaller images, such
            as digits of 8 x 8. Defaults to `"valid"`.
        classifier_activation: Activation of the classifier. Defaults to
            `None`, logits.
        name: Name of the model. Defaults to `None`, `"lenet_5"`.

    Example:

    ```python
    model = keras_bdl.applications.LeNet5()
    model.compile(keras_bdl.VOGN(), loss)
    ```

    Reference:
        - Osawa et al., [Practical Deep Learning with Bayesian Principles](
          https://arxiv.org/abs/1906.02506), section 4 and appendix C
    """
    inputs = x = keras.Input(input_shape)
    for k, filters in enumerate((6, 16), start=1):
        x = keras.layers.Conv2D(
            filters,
            5,
            padding=padding,
            activation=activation,
            kernel_initializer="he_normal",
            name=f"conv{k}",
        )(x)
        x = keras.layers.MaxPooling2D(padding=padding, name=f"pool{k}")(x)
    x = keras.layers.Flatten(name="flatten")(x)
    for k, units in enumerate((120, 84), start=1):
        x = keras.layers.Dense(
            units, activation, kernel_initializer="he_normal", name=f"dense{k}"
        )(x)
    x = keras.layers.Dense(classes, classifier_activation, name="predictions")(
        x
    )
    return Model(inputs, x, name=name or "lenet_5")


def AlexNet(
    input_shape: ImageShape = (32, 32, 3),
    classes: int = 10,
    *,
    filters: int = 64,
    activation: Activation = "relu",
    include_top: bool = True,
    classifier_activation: Activation = None,
    name: str | None = None,
) -> Model:
    """Makes an AlexNet for small images.

    Use it to repeat the CIFAR-10 experiments of the VOGN paper. The network
    has the five convolutions of an AlexNet, with a max pooling after the
    first, the second and the last. These layers reduce an image of 32 x 32 to
    one pixel, so one dense layer replaces the three of the original. The
    network has neither BatchNorm nor local response normalisation. With the
    defaults, the network has 2,472,266 weights.

    The VOGN paper says only "AlexNet". The sizes of the layers are those of
    the paper's code. Three details differ from the code. The initialisation is
    `"he_normal"`. The first convolution has the `"same"` padding of Keras. For
    32 x 32 pixels, this is 3 pixels on one side and 4 on the other, instead of
    5 on both. The poolings have padding, which has no effect on images of
    32 x 32 pixels.

    Args:
        input_shape: Shape of an image. Height and width may be `None`.
            Defaults to `(32, 32, 3)`.
        classes: Number of classes. Defaults to `10`.
        filters: Number of filters of the first convolution. The later
            convolutions have 3, 6, 4 and 4 times this number. Defaults to
            `64`.
        activation: Activation of the convolutions. Defaults to `"relu"`.
        include_top: Whether to add the global average pooling and the
            classifier. Defaults to `True`.
        classifier_activation: Activation of the classifier. Defaults to
            `None`, logits.
        name: Name of the model. Defaults to `None`, `"alexnet"`.

    Example:

    ```python
    model = keras_bdl.applications.AlexNet(filters=2)
    dropout = keras_bdl.convert(model, "mc_dropout", rate=0.1)
    ```

    Reference:
        - Osawa et al., [Practical Deep Learning with Bayesian Principles](
          https://arxiv.org/abs/1906.02506), section 4 and appendix C
        - Krizhevsky, [One Weird Trick for Parallelizing Convolutional Neural
          Networks](https://arxiv.org/abs/1404.5997), for the filters
    """
    inputs = x = keras.Input(input_shape)
    for k, (size, width, strides, pooled) in enumerate(CONVOLUTIONS, start=1):
        x = keras.layers.Conv2D(
            filters * width,
            size,
            strides,
            "same",
            activation=activation,
            kernel_initializer="he_normal",
            name=f"conv{k}",
        )(x)
        if pooled:
            x = keras.layers.MaxPooling2D(padding="same", name=f"pool{k}")(x)
    if include_top:
        x = keras.layers.GlobalAveragePooling2D(name="avg_pool")(x)
        x = keras.layers.Dense(
            classes, classifier_activation, name="predictions"
        )(x)
    return Model(inputs, x, name=name or "alexnet")


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
    _check_poolings(pooling, poolings)
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


class VGGOptions(TypedDict, total=False):
    """The arguments that `keras_bdl.applications.VGG16` documents."""

    filters: int
    include_top: bool
    classifier_activation: Activation
    name: str | None


def VGG16BN(
    input_shape: ImageShape = (32, 32, 3),
    classes: int = 10,
    *,
    batch_norm: bool = True,
    pooling: str | Sequence[str] = "avg",
    hidden_units: Sequence[int] = (512, 512),
    dropout_rate: float = 0.5,
    pool_padding: str = "same",
    **options: Unpack[VGGOptions],
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
        input_shape: Shape of an image. Defaults to `(32, 32, 3)`.
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


def _convolution(x: Any, filters: int, batch_norm: bool, name: str) -> Any:
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


def _check_poolings(pooling: Any, poolings: tuple) -> None:
    if not poolings or not set(poolings) <= set(POOLINGS):
        raise ValueError(
            f"`pooling` must be one of {sorted(POOLINGS)}, or a tuple of both. "
            f"{did_you_mean(pooling, POOLINGS)}Received: pooling={pooling!r}"
        )


def MultiHeadMLP(
    input_shape: ImageShape = (28, 28, 1),
    heads: int = 5,
    classes: int = 2,
    *,
    units: Sequence[int] = (200, 200, 200, 200),
    activation: Activation = "relu",
    classifier_activation: Activation = None,
    name: str | None = None,
) -> Model:
    """Makes a network of dense layers with one head for each task.

    Use it for continual learning. All heads read the last layer of one body.
    The model has a list of outputs, one for each head. Make one network for
    each task from the model. These networks share the body:

        networks = [keras_bdl.Model(model.input, y) for y in model.outputs]

    Call `keras_bdl.convert` before you make the networks, so that they share
    the converted layers. With the defaults, the model has 279,610 weights.

    Args:
        input_shape: Shape of an input, which is flattened. Defaults to
            `(28, 28, 1)`.
        heads: Number of heads, one for each task. With `1`, all tasks share
            the classifier. Defaults to `5`.
        classes: Number of classes of a task. Defaults to `2`.
        units: Number of units of each hidden layer. Defaults to
            `(200, 200, 200, 200)`, the network of the Radial paper.
        activation: Activation of the hidden layers. Defaults to `"relu"`.
        classifier_activation: Activation of the heads. Defaults to `None`,
            logits.
        name: Name of the model. Defaults to `None`, `"multi_head_mlp"`.

    Example:

    ```python
    plain = keras_bdl.applications.MultiHeadMLP((4,), heads=2, units=(8,))
    model = keras_bdl.convert(plain, "radial")
    networks = [keras_bdl.Model(model.input, y) for y in model.outputs]
    for network in networks:
        network.compile("adam", loss)
        network.fit(x, y % 2)
        keras_bdl.continual.posterior_becomes_prior(network)
    ```

    Reference:
        - Farquhar et al., [Radial Bayesian Neural Networks](
          https://arxiv.org/abs/1907.00865), section 4.2 and appendix D.2
    """
    check_count("heads", heads)
    inputs = keras.Input(input_shape)
    x = keras.layers.Flatten(name="flatten")(inputs)
    for k, size in enumerate(units, start=1):
        x = _dense(size, activation, f"dense{k}")(x)
    outputs = [
        _dense(classes, classifier_activation, f"head{k}")(x)
        for k in range(1, heads + 1)
    ]
    return Model(inputs, outputs, name=name or "multi_head_mlp")


def _dense(units: int, activation: Activation, name: str) -> keras.Layer:
    # As in the paper, the heads have this initializer, too.
    return keras.layers.Dense(
        units, activation, kernel_initializer="he_normal", name=name
    )
