"""ResNet++, residual networks without BatchNorm for samplers."""

import functools
from collections.abc import Callable
from typing import Any
from typing import TypedDict
from typing import Unpack

import keras

from keras_bdl import priors
from keras_bdl._aliases import Activation
from keras_bdl._aliases import ImageShape
from keras_bdl._aliases import PriorOrDefault
from keras_bdl._arguments import check_choice
from keras_bdl._arguments import check_count
from keras_bdl._arguments import check_number
from keras_bdl._models import Model
from keras_bdl.applications._residual_network import RESNET_50
from keras_bdl.applications._residual_network import Architecture
from keras_bdl.applications._residual_network import Convolution
from keras_bdl.applications._residual_network import architecture_of
from keras_bdl.applications._residual_network import residual_stages
from keras_bdl.layers import WeightNormConv2D
from keras_bdl.layers import WeightNormDense
from keras_bdl.priors._tfp_distribution import get_prior
from keras_bdl.priors._vectors import UnitDirection

_DEFAULT_PRIORS: dict[str, Callable] = {
    "scale_regularizer": functools.partial(priors.Laplace, 5.0),
    "direction_regularizer": UnitDirection,
    "bias_regularizer": functools.partial(priors.Normal, 1.0),
}
_POOLING = {
    "avg": keras.layers.GlobalAveragePooling2D,
    "max": keras.layers.GlobalMaxPooling2D,
}


class ResNetPlusPlusOptions(TypedDict, total=False):
    """The arguments of `keras_bdl.applications.ResNetPlusPlus`."""

    include_top: bool
    pooling: str | None
    classifier_activation: Activation
    branch_scale: float
    scale_prior: PriorOrDefault
    direction_prior: PriorOrDefault
    bias_prior: PriorOrDefault
    dataset_size: int | None
    input_tensor: Any
    name: str | None


def ResNetPlusPlus(
    depth: int | Architecture,
    input_shape: ImageShape = (32, 32, 3),
    classes: int = 10,
    *,
    filters: int = 16,
    include_top: bool = True,
    pooling: str | None = None,
    classifier_activation: Activation = None,
    branch_scale: float = 0.1,
    scale_prior: PriorOrDefault = "default",
    direction_prior: PriorOrDefault = "default",
    bias_prior: PriorOrDefault = "default",
    dataset_size: int | None = None,
    input_tensor: Any = None,
    name: str | None = None,
) -> Model:
    """Makes a ResNet++ for small images.

    Use it with samplers such as `keras_bdl.ATMC`. With BatchNorm, the output
    for one example depends on the other examples of the batch, so the weights
    define no likelihood. ResNet++ has no BatchNorm: every layer is
    weight-normalised and every activation is a SELU. A block is

        x + conv(selu(conv(selu(x))))                                     (1)

    If a block changes the shape, a convolution of size 1 without bias maps
    selu(x) to the new shape and replaces x. A SELU, global average pooling and
    a weight-normalised dense layer follow the last block.

    Scales start at 1, and at `branch_scale` in the last convolution of every
    branch. For standard normal inputs, the variance then stays near 1 in all
    stages, as tests up to depth 110 show. The paper does not state the initial
    scale of the last convolution.

    Priors become regularizers `-log p / N`, with N the `dataset_size`. The
    loss must be the mean negative log-likelihood. With the priors, the loss is
    often negative, because densities in many dimensions may exceed 1.

    For 3 channels and 10 classes, 16 filters make 272,388 weights at depth 20,
    855,684 at depth 56 and 1,730,628 at depth 110.

    Args:
        depth: 6n + 2, such as 8, 20, 56 or 110, for three stages of n blocks.
            Or an `Architecture`.
        input_shape: Shape of an image. Height and width may be `None`.
            Defaults to `(32, 32, 3)`.
        classes: Number of classes. Defaults to `10`.
        filters: Number of filters of the first stage. Each later stage
            doubles the number. Defaults to `16`.
        include_top: Whether to add the pooling and the classifier. Defaults to
            `True`.
        pooling: `"avg"` or `"max"`, over the image. Defaults to `None`:
            `"avg"` before a classifier, otherwise no pooling.
        classifier_activation: Activation of the classifier. Defaults to
            `None`, logits.
        branch_scale: Initial scale of the last convolution of a branch.
            Defaults to `0.1`.
        scale_prior: Prior of the scales: one of `keras_bdl.priors`, a
            distribution of TensorFlow Probability, or `None` for no prior: a
            sampler then adds its own. Defaults to `"default"`, `Laplace(5.0)`
            as in the paper.
        direction_prior: Prior of the directions, with the same choices as
            `scale_prior`. Defaults to `"default"`, `UnitDirection()` as in the
            paper.
        bias_prior: Prior of the biases, with the same choices. The paper
            states no such prior. Defaults to `"default"`, `Normal(1.0)`.
        dataset_size: N of the default priors. Defaults to `None`: counted by
            `keras_bdl.Model.fit`.
        input_tensor: Output of other layers, to use in place of a new
            `keras.Input`. Defaults to `None`.
        name: Name of the model. Defaults to `None`,
            `"resnet_plus_plus_<depth>"`.

    Example:

    ```python
    model = keras_bdl.applications.ResNetPlusPlus(8, (8, 8, 1), filters=2)
    model.compile(keras_bdl.ATMC(dataset_size=50_000), loss)
    ```

    Reference:
        - Heek and Kalchbrenner, [Bayesian Inference for Large Scale Image
          Classification](https://arxiv.org/abs/1908.03491), section 4
    """
    architecture = architecture_of(depth)
    _check(filters, classes, pooling, branch_scale)
    given = {
        "scale_regularizer": scale_prior,
        "direction_regularizer": direction_prior,
        "bias_regularizer": bias_prior,
    }
    options: dict[str, Any] = {
        argument: _DEFAULT_PRIORS[argument](dataset_size=dataset_size)
        if isinstance(prior, str) and prior == "default"
        else get_prior(prior)
        for argument, prior in given.items()
    }
    # Normal weights have uniform directions, as in the default prior.
    options["kernel_initializer"] = "random_normal"

    inputs = keras.Input(input_shape) if input_tensor is None else input_tensor
    convolution: Any = functools.partial(
        WeightNormConv2D, padding="same", **options
    )
    stem = architecture.stem
    x = convolution(
        filters,
        stem.kernel_size,
        strides=stem.strides,
        scale_initializer=keras.initializers.Constant(stem.scale),
        name="stem_conv",
    )(inputs)
    block = functools.partial(
        _block, architecture.branch, branch_scale, convolution
    )
    x = residual_stages(x, architecture, filters, block)
    x = keras.layers.Activation("selu", name="selu")(x)
    if include_top or pooling:
        pooling = pooling or "avg"
        x = _POOLING[pooling](name=f"{pooling}_pool")(x)
    if include_top:
        x = WeightNormDense(
            classes, classifier_activation, name="predictions", **options
        )(x)
    if input_tensor is not None:
        sources = keras.utils.get_source_inputs(input_tensor)
        inputs = sources[0] if len(sources) == 1 else sources
    name = name or f"resnet_plus_plus_{architecture.depth}"
    return Model(inputs, x, name=name)


def ResNetPlusPlus56(
    input_shape: ImageShape = (32, 32, 3),
    classes: int = 10,
    *,
    filters: int = 32,
    **options: Unpack[ResNetPlusPlusOptions],
) -> Model:
    """Makes the ResNet++ of depth 56, the paper's network for CIFAR.

    With the defaults the network has 3,412,212 weights.

    Args:
        input_shape: Shape of an image. Defaults to `(32, 32, 3)`.
        classes: Number of classes. Defaults to `10`.
        filters: Number of filters of the first stage. Each later stage
            doubles the number. Defaults to `32`.
        **options: Other arguments of `ResNetPlusPlus`.

    Example:

    ```python
    model = keras_bdl.applications.ResNetPlusPlus56(classes=100, filters=2)
    ```
    """
    return ResNetPlusPlus(56, input_shape, classes, filters=filters, **options)


def ResNetPlusPlus50(
    input_shape: ImageShape = (224, 224, 3),
    classes: int = 1000,
    *,
    filters: int = 64,
    **options: Unpack[ResNetPlusPlusOptions],
) -> Model:
    """Makes the ResNet++ of depth 50, the paper's network for ImageNet.

    The blocks have three convolutions, of sizes 1, 3 and 1. The first
    convolution of the network has size 7, and a max pooling follows. The scales
    of this convolution start at 0.62. With this value and standard normal
    inputs, the output of the pooling has the mean square 1. Each output is the
    largest of nine values. With the defaults, the network has 25,554,192
    weights.

    Args:
        input_shape: Shape of an image. Defaults to `(224, 224, 3)`.
        classes: Number of classes. Defaults to `1000`.
        filters: Number of filters of the first stage. A block has four times
            as many output channels. Each later stage doubles both numbers.
            Defaults to `64`.
        **options: Other arguments of `ResNetPlusPlus`.

    Example:

    ```python
    model = keras_bdl.applications.ResNetPlusPlus50(
        (64, 64, 3), classes=120, filters=2
    )
    ```
    """
    return ResNetPlusPlus(
        RESNET_50, input_shape, classes, filters=filters, **options
    )


def _check(
    filters: int, classes: int, pooling: str | None, branch_scale: float
) -> None:
    check_count("filters", filters)
    check_count("classes", classes)
    check_choice("pooling", pooling, (None, *_POOLING))
    check_number("branch_scale", branch_scale, at_least=0)


def _block(
    branch: tuple[Convolution, ...],
    branch_scale: float,
    convolution: Callable,
    x: Any,
    width: int,
    strides: int,
    project: bool,
    name: str,
) -> Any:
    """Applies (1)."""
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
