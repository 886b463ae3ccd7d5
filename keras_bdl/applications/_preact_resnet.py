"""Residual networks with activations before the convolutions.

`PreResNet` and `WideResNet` are cases of `PreActResNet`.
"""

import functools
from typing import Any
from typing import Unpack

import keras

from keras_bdl._aliases import Activation
from keras_bdl._aliases import ImageShape
from keras_bdl._arguments import check_bool
from keras_bdl._arguments import check_count
from keras_bdl._models import Model
from keras_bdl.applications._residual_network import BASIC
from keras_bdl.applications._residual_network import BOTTLENECK
from keras_bdl.applications._residual_network import RESNET_18
from keras_bdl.applications._residual_network import Architecture
from keras_bdl.applications._residual_network import Convolution
from keras_bdl.applications._residual_network import NetworkOptions
from keras_bdl.applications._residual_network import Stage
from keras_bdl.applications._residual_network import Stem
from keras_bdl.applications._residual_network import activated
from keras_bdl.applications._residual_network import architecture_of
from keras_bdl.applications._residual_network import blocks_of_depth
from keras_bdl.applications._residual_network import classifier
from keras_bdl.applications._residual_network import convolution
from keras_bdl.applications._residual_network import residual_stages


class PreActOptions(NetworkOptions, total=False):
    """The arguments that `keras_bdl.applications.PreActResNet` documents."""

    dropout_rate: float


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

    Example:

    ```python
    model = keras_bdl.applications.PreActResNet(8, (8, 8, 1), filters=2)
    model.compile(keras_bdl.VOGN(), loss)
    ```

    Reference:
        - He et al., [Identity Mappings in Deep Residual Networks](
          https://arxiv.org/abs/1603.05027)
    """
    architecture = architecture_of(depth)
    stem = architecture.stem
    inputs = keras.Input(input_shape)
    x = convolution(
        inputs, filters, stem.kernel_size, stem.strides, "stem_conv"
    )
    block = functools.partial(
        _block, architecture.branch, activation, dropout_rate
    )
    x = residual_stages(x, architecture, filters, block)
    x = activated(x, activation, "last")
    if include_top:
        x = classifier(x, classes, classifier_activation)
    return Model(inputs, x, name=name or f"preact_resnet_{architecture.depth}")


def PreActResNet18(
    input_shape: ImageShape = (32, 32, 3),
    classes: int = 10,
    *,
    filters: int = 64,
    **options: Unpack[PreActOptions],
) -> Model:
    """Makes the residual network of depth 18 with pre-activation.

    The network has four stages of two blocks, for small images. With the
    defaults, the network has 11,172,170 trainable weights.

    Args:
        input_shape: Shape of an image. Defaults to `(32, 32, 3)`.
        classes: Number of classes. Defaults to `10`.
        filters: Number of filters of the first stage. Each later stage
            doubles the number. Defaults to `64`.
        **options: Other arguments of `PreActResNet`.

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


def PreResNet(
    depth: int,
    input_shape: ImageShape = (32, 32, 3),
    classes: int = 10,
    *,
    bottleneck: bool | None = None,
    **options: Unpack[PreActOptions],
) -> Model:
    """Makes the PreResNet of a given depth for small images.

    Use it to repeat the experiments of the SWAG paper. The network is a
    `PreActResNet` of three stages. The blocks of deep networks are bottlenecks:
    convolutions of sizes 1, 3 and 1, the last with four times the filters.
    Blocks of shallow networks have two convolutions of size 3.

    With the defaults, depth 20 has 272,282 trainable weights, 56 has 590,426,
    110 has 1,146,842 and 164 has 1,703,258. Without bottlenecks, depth 56 has
    855,578 and 110 has 1,730,522.

    Args:
        depth: 9n + 2 with bottlenecks, such as 56, 110 or 164, otherwise
            6n + 2, such as 20.
        input_shape: Shape of an image. Defaults to `(32, 32, 3)`.
        classes: Number of classes. Defaults to `10`.
        bottleneck: Whether the blocks are bottlenecks. For depths 56 and 110
            of He et al., pass `False`: only their depth 164 has bottlenecks.
            Defaults to `None`: bottlenecks from depth 44 on, as in the SWAG
            paper.
        **options: Other arguments of `PreActResNet`. `name` defaults to
            `"preresnet_<depth>"`.

    Example:

    ```python
    model = keras_bdl.applications.PreResNet(8, (8, 8, 1), filters=2)
    model.compile(keras.optimizers.SGD(0.1, momentum=0.9), loss)
    swag = keras_bdl.SWAG(start_epoch=0, rank=2)
    model.fit(images, labels, epochs=3, callbacks=[swag])
    ```

    Reference:
        - He et al., [Identity Mappings in Deep Residual Networks](
          https://arxiv.org/abs/1603.05027)
        - Maddox et al., [A Simple Baseline for Bayesian Uncertainty in Deep
          Learning](https://arxiv.org/abs/1902.02476), section 5, which does
          not describe the blocks. The code of this paper passes x instead of
          f(norm(x)) to the convolutions that change the shape.
    """
    if bottleneck is None:
        # `of_depth` raises for a depth that is not a number.
        bottleneck = isinstance(depth, int) and depth >= 44
    check_bool("bottleneck", bottleneck)
    branch = BOTTLENECK if bottleneck else BASIC
    architecture = Architecture.of_depth(depth, branch)
    options["name"] = options.get("name") or f"preresnet_{depth}"
    return PreActResNet(architecture, input_shape, classes, **options)


def WideResNet(
    depth: int,
    width: int,
    input_shape: ImageShape = (32, 32, 3),
    *,
    classes: int = 10,
    filters: int = 16,
    **options: Unpack[PreActOptions],
) -> Model:
    """Makes a wide residual network for small images.

    Use it to repeat the experiments of the SWAG paper. The network is a
    `PreActResNet` of three stages of n blocks. The argument `width` multiplies
    the number of filters in every block, but not in the first convolution.

    Args:
        depth: 6n + 4, such as 16, 28 or 40. This count includes the
            convolutions of size 1 that change the shape.
        width: Factor of the number of filters in the blocks.
        input_shape: Shape of an image. Defaults to `(32, 32, 3)`.
        classes: Number of classes. Defaults to `10`.
        filters: Number of filters of the first convolution. The stages have
            `width`, `2 * width` and `4 * width` times this number. Defaults to
            `16`.
        **options: Other arguments of `PreActResNet`. The paper uses
            `dropout_rate=0.3`. `name` defaults to
            `"wide_resnet_<depth>_<width>"`.

    Example:

    ```python
    model = keras_bdl.applications.WideResNet(
        10, 2, (8, 8, 1), filters=2, dropout_rate=0.3
    )
    ```

    Reference:
        - Zagoruyko and Komodakis, [Wide Residual Networks](
          https://arxiv.org/abs/1605.07146), table 1
    """
    check_count("width", width)
    blocks = blocks_of_depth(depth, 6, 4)
    architecture = Architecture(
        Stem(3),
        BASIC,
        (
            Stage(blocks, width, 1),
            Stage(blocks, 2 * width, 2),
            Stage(blocks, 4 * width, 2),
        ),
    )
    options["name"] = options.get("name") or f"wide_resnet_{depth}_{width}"
    return PreActResNet(
        architecture, input_shape, classes, filters=filters, **options
    )


class WideResNetOptions(PreActOptions, total=False):
    """Arguments of `keras_bdl.applications.WideResNet` and `PreActResNet`."""

    filters: int


def WideResNet28x10(
    input_shape: ImageShape = (32, 32, 3),
    classes: int = 10,
    **options: Unpack[WideResNetOptions],
) -> Model:
    """Makes the wide residual network of depth 28 and width 10.

    With the defaults the network has 36,479,194 trainable weights.

    Args:
        input_shape: Shape of an image. Defaults to `(32, 32, 3)`.
        classes: Number of classes. Defaults to `10`.
        **options: Other arguments of `WideResNet`.

    Example:

    ```python
    model = keras_bdl.applications.WideResNet28x10(classes=100, filters=1)
    ```

    Reference:
        - Maddox et al., [A Simple Baseline for Bayesian Uncertainty in Deep
          Learning](https://arxiv.org/abs/1902.02476), section 5. In the
          code of the paper, the convolutions also have biases.
    """
    return WideResNet(28, 10, input_shape, classes=classes, **options)


def _block(
    branch: tuple[Convolution, ...],
    activation: Activation,
    dropout_rate: float,
    x: Any,
    width: int,
    strides: int,
    project: bool,
    name: str,
) -> Any:
    """Applies (1)."""
    y = activated(x, activation, f"{name}_1")
    outputs = width * branch[-1].expansion
    if project:
        x = convolution(y, outputs, 1, strides, f"{name}_projection")
    for k, layer in enumerate(branch, start=1):
        if k > 1:
            y = activated(y, activation, f"{name}_{k}")
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
