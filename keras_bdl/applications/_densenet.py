"""DenseNet: every layer reads the outputs of all earlier layers."""

from collections.abc import Sequence
from typing import Any
from typing import Unpack

import keras

from keras_bdl._aliases import Activation
from keras_bdl._aliases import ImageShape
from keras_bdl._arguments import as_list
from keras_bdl._arguments import check_count
from keras_bdl._arguments import check_number
from keras_bdl._models import Model
from keras_bdl.applications._residual_network import IMAGENET
from keras_bdl.applications._residual_network import SMALL_IMAGES
from keras_bdl.applications._residual_network import NetworkOptions
from keras_bdl.applications._residual_network import Stem
from keras_bdl.applications._residual_network import activated
from keras_bdl.applications._residual_network import classifier
from keras_bdl.applications._residual_network import convolution
from keras_bdl.applications._residual_network import stem_pooling


class DenseNetOptions(NetworkOptions, total=False):
    """The arguments that `keras_bdl.applications.DenseNet` documents."""

    filters: int | None
    compression: float


def DenseNet(
    blocks: Sequence[int],
    input_shape: ImageShape = (32, 32, 3),
    classes: int = 10,
    *,
    growth_rate: int = 12,
    filters: int | None = None,
    compression: float = 0.5,
    stem: Stem = SMALL_IMAGES,
    activation: Activation = "relu",
    include_top: bool = True,
    classifier_activation: Activation = None,
    name: str | None = None,
) -> Model:
    """Makes a DenseNet with bottlenecks, compression and BatchNorm.

    Use it for a DenseNet of your own depth. `keras.applications` has the
    depths 121, 169 and 201, and `keras_bdl.convert` accepts them. A layer of a
    block adds k channels to its input,

        [x, conv3(f(norm(conv1(f(norm(x))))))]                            (1)

    with an activation f, a convolution of size 1 with 4k filters and a
    convolution of size 3 with k filters. A transition connects two blocks:
    norm, activation, a convolution of size 1 that keeps a share of the
    channels, and an average pooling. The network begins with a convolution. If
    the stem has a pooling, norm, activation and this pooling follow. The
    network ends with norm, activation, global average pooling and the
    classifier. Convolutions have no biases. With `blocks=(16, 16, 16)`, which
    is depth 100, and the other defaults, the network has 769,162 trainable
    weights.

    Args:
        blocks: Number of layers of each block. The depth is twice the sum of
            these numbers, plus one for the stem, one for each convolution
            between two blocks and one for the classifier.
        input_shape: Shape of an image. Height and width may be `None`.
            Defaults to `(32, 32, 3)`.
        classes: Number of classes. Defaults to `10`.
        growth_rate: k in (1). Defaults to `12`.
        filters: Number of filters of the first convolution. Defaults to
            `None`, twice the `growth_rate`.
        compression: Share of the channels that a transition keeps. Defaults
            to `0.5`.
        stem: The layers before the first block. Defaults to
            `keras_bdl.extend.SMALL_IMAGES`, a convolution of size
            3.
        activation: f in (1). Defaults to `"relu"`.
        include_top: Whether to add the global average pooling and the
            classifier. Defaults to `True`.
        classifier_activation: Activation of the classifier. Defaults to
            `None`, logits.
        name: Name of the model. Defaults to `None`, `"densenet_<depth>"`.

    Example:

    ```python
    model = keras_bdl.applications.DenseNet((2, 2), classes=100)
    ```

    Reference:
        - Huang et al., [Densely Connected Convolutional Networks](
          https://arxiv.org/abs/1608.06993), DenseNet-BC
    """
    _check(blocks, compression)
    filters = 2 * growth_rate if filters is None else filters
    inputs = keras.Input(input_shape)
    x = convolution(
        inputs, filters, stem.kernel_size, stem.strides, "stem_conv"
    )
    if stem.pool_size:
        x = stem_pooling(activated(x, activation, "stem"), stem)
    for i, layers in enumerate(blocks, start=1):
        if i > 1:
            transition = f"transition{i - 1}"
            x = activated(x, activation, transition)
            kept = int(compression * x.shape[-1])
            x = convolution(x, kept, 1, 1, f"{transition}_conv")
            x = keras.layers.AveragePooling2D(2, name=f"{transition}_pool")(x)
        for j in range(1, layers + 1):
            x = _layer(x, growth_rate, activation, f"block{i}_layer{j}")
    x = activated(x, activation, "last")
    if include_top:
        x = classifier(x, classes, classifier_activation)
    depth = 2 * sum(blocks) + len(blocks) + 1
    return Model(inputs, x, name=name or f"densenet_{depth}")


def DenseNet161(
    input_shape: ImageShape = (224, 224, 3),
    classes: int = 1000,
    *,
    growth_rate: int = 48,
    stem: Stem = IMAGENET,
    **options: Unpack[DenseNetOptions],
) -> Model:
    """Makes the DenseNet of depth 161 for ImageNet.

    The network has blocks of 6, 12, 36 and 24 layers. With the defaults, the
    network has 28,681,000 trainable weights.

    Args:
        input_shape: Shape of an image. Defaults to `(224, 224, 3)`.
        classes: Number of classes. Defaults to `1000`.
        growth_rate: k in (1) of `DenseNet`. Defaults to `48`.
        stem: The layers before the first block. Defaults to
            `keras_bdl.extend.IMAGENET`, a convolution of size 7
            and a max pooling, which leave a sixteenth of the pixels.
        **options: Other arguments of `DenseNet`.

    Example:

    ```python
    model = keras_bdl.applications.DenseNet161(
        (32, 32, 3), classes=120, growth_rate=2
    )
    ```
    """
    return DenseNet(
        (6, 12, 36, 24),
        input_shape,
        classes,
        growth_rate=growth_rate,
        stem=stem,
        **options,
    )


def _layer(x: Any, growth_rate: int, activation: Activation, name: str) -> Any:
    """Applies (1)."""
    y = activated(x, activation, f"{name}_1")
    y = convolution(y, 4 * growth_rate, 1, 1, f"{name}_conv1")
    y = activated(y, activation, f"{name}_2")
    y = convolution(y, growth_rate, 3, 1, f"{name}_conv2")
    return keras.layers.Concatenate(name=f"{name}_concatenate")([x, y])


def _check(blocks: Any, compression: float) -> None:
    layers = as_list("blocks", blocks, "the number of layers of each block")
    if not layers:
        raise ValueError(
            "`blocks` must be the number of layers of each block, such as "
            f"(16, 16, 16). Received: blocks={blocks!r}"
        )
    for i, number in enumerate(layers):
        check_count(f"blocks[{i}]", number)
    check_number("compression", compression, above=0, at_most=1)
