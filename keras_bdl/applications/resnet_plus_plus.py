"""ResNet++, residual networks whose weights are easy to sample."""

import functools
import math

import keras

from keras_bdl import priors
from keras_bdl.applications.architecture import RESNET_50
from keras_bdl.applications.architecture import Architecture
from keras_bdl.applications.residual_stages import residual_features
from keras_bdl.layers import WeightNormConv2D
from keras_bdl.layers import WeightNormDense
from keras_bdl.models import Model

_DEFAULT_PRIORS = {
    "scale_regularizer": functools.partial(priors.Laplace, 5.0),
    "direction_regularizer": priors.UnitDirection,
    "bias_regularizer": functools.partial(priors.Normal, 1.0),
}
_POOLING = {
    "avg": keras.layers.GlobalAveragePooling2D,
    "max": keras.layers.GlobalMaxPooling2D,
}


def ResNetPlusPlus(
    depth: int | Architecture,
    input_shape=(32, 32, 3),
    classes: int = 10,
    filters: int = 16,
    include_top: bool = True,
    pooling: str | None = None,
    classifier_activation=None,
    branch_scale: float = 0.1,
    scale_prior="default",
    direction_prior="default",
    bias_prior="default",
    dataset_size: int | None = None,
    input_tensor=None,
    name: str | None = None,
):
    """Makes a ResNet++ for small images.

    A residual network without BatchNorm, which couples the examples of a
    batch and so has no likelihood to sample from. In its place every layer is
    weight-normalised and every activation is a SELU:

        x + conv(selu(conv(selu(x))))                                     (1)

    is a block; where it changes the shape, a convolution of size 1 without
    bias takes selu(x) to the new shape in place of x. After the last block
    come a SELU, the average over the image and a weight-normalised dense
    layer. Scales start at 1, but at `branch_scale` in the last convolution of
    every branch, so that depth does not add up: for standard normal inputs
    the variance stays near 1 from the first stage to the last, tested to
    depth 110. The constant is ours, the paper gives none.

    Priors become regularizers, `-log p / N`, with N the `dataset_size`. The
    loss must be the mean negative log-likelihood. With the priors it is often
    negative: densities are, with their constants, those of many dimensions.

    For 3 channels and 10 classes, 16 filters make 272,388 weights at depth
    20, 855,684 at depth 56 and 1,730,628 at depth 110.

    Args:
        depth: 6n + 2, such as 8, 20, 56 or 110: three stages of n blocks.
            Or an `Architecture`.
        input_shape: Shape of an image; height and width may be `None`.
            Defaults to `(32, 32, 3)`.
        classes: Number of classes. Defaults to `10`.
        filters: Filters of the first stage; each later stage has twice as
            many. Defaults to `16`.
        include_top: Whether to end in the pooling and the classifier.
            Defaults to `True`.
        pooling: `"avg"` or `"max"`, over the image. Defaults to `None`:
            `"avg"` before a classifier, otherwise none.
        classifier_activation: Activation of the classifier. Defaults to
            `None`, logits.
        branch_scale: Initial scale of the last convolution of a branch.
            Defaults to `0.1`.
        scale_prior: Prior of the scales: one of `keras_bdl.priors`, a
            distribution of TensorFlow Probability, or `None`. Defaults to
            `"default"`: `Laplace(5.0)`, the paper's.
        direction_prior: Prior of the directions, likewise. Defaults to
            `"default"`: `UnitDirection()`, the paper's.
        bias_prior: Prior of the biases, likewise. Defaults to `"default"`:
            `Normal(1.0)`; the paper gives none.
        dataset_size: N of the default priors. Defaults to `None`: counted by
            `keras_bdl.Model.fit`.
        input_tensor: Output of other layers that takes the place of the
            input. Defaults to `None`.
        name: Name of the model. Defaults to `None`:
            `"resnet_plus_plus_<depth>"`.

    Returns:
        A `keras_bdl.Model`. There are no pretrained weights.

    Example:

    ```python
    model = keras_bdl.applications.ResNetPlusPlus(20, classes=100)
    model.compile(
        keras_bdl.ATMC(dataset_size=50_000),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    )
    ```

    Reference:
        - Heek and Kalchbrenner, [Bayesian Inference for Large Scale Image
          Classification](https://arxiv.org/abs/1908.03491), section 4
    """
    if not isinstance(depth, Architecture):
        depth = Architecture.of_depth(depth)
    _check(filters, classes, pooling, branch_scale)
    given = {
        "scale_regularizer": scale_prior,
        "direction_regularizer": direction_prior,
        "bias_regularizer": bias_prior,
    }
    options = {
        argument: _DEFAULT_PRIORS[argument](dataset_size=dataset_size)
        if isinstance(prior, str) and prior == "default"
        else priors.get(prior)
        for argument, prior in given.items()
    }
    # Normal: directions are uniform on the sphere, as in their prior.
    options["kernel_initializer"] = "random_normal"

    inputs = keras.Input(input_shape) if input_tensor is None else input_tensor
    convolution = functools.partial(WeightNormConv2D, padding="same", **options)
    x = residual_features(inputs, depth, filters, branch_scale, convolution)
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
    return Model(inputs, x, name=name or f"resnet_plus_plus_{depth.depth}")


def ResNetPlusPlus56(
    input_shape=(32, 32, 3), classes: int = 10, filters: int = 32, **kwargs
):
    """Makes the ResNet++ of the paper for CIFAR, depth 56.

    With the defaults it has 3,412,212 weights.

    Args:
        input_shape: See `ResNetPlusPlus`. Defaults to `(32, 32, 3)`.
        classes: See `ResNetPlusPlus`. Defaults to `10`.
        filters: See `ResNetPlusPlus`. Defaults to `32`.
        **kwargs: As of `ResNetPlusPlus`.

    Returns:
        A `keras_bdl.Model`.

    Example:

    ```python
    model = keras_bdl.applications.ResNetPlusPlus56(classes=100)
    ```
    """
    return ResNetPlusPlus(56, input_shape, classes, filters, **kwargs)


def ResNetPlusPlus50(
    input_shape=(224, 224, 3), classes: int = 1000, filters: int = 64, **kwargs
):
    """Makes the ResNet++ of the paper for ImageNet, depth 50.

    Its blocks have three convolutions, of sizes 1, 3 and 1. The first of all
    has size 7, and a max pooling behind it; its scales start at 0.62, so that
    the largest of nine normal values has the mean square 1. With the defaults
    it has 25,554,192 weights.

    Args:
        input_shape: See `ResNetPlusPlus`. Defaults to `(224, 224, 3)`.
        classes: See `ResNetPlusPlus`. Defaults to `1000`.
        filters: See `ResNetPlusPlus`; the blocks of the first stage put out
            four times as many. Defaults to `64`.
        **kwargs: As of `ResNetPlusPlus`.

    Returns:
        A `keras_bdl.Model`.

    Example:

    ```python
    model = keras_bdl.applications.ResNetPlusPlus50((128, 128, 3), classes=120)
    ```
    """
    return ResNetPlusPlus(RESNET_50, input_shape, classes, filters, **kwargs)


def _check(filters, classes, pooling, branch_scale):
    for argument, value in (("filters", filters), ("classes", classes)):
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise ValueError(
                f"`{argument}` must be a positive integer. "
                f"Received: {argument}={value!r}"
            )
    if pooling is not None and pooling not in _POOLING:
        raise ValueError(
            f"`pooling` must be one of {sorted(_POOLING)}, or `None`. "
            f"Received: pooling={pooling!r}"
        )
    if not 0 <= branch_scale < math.inf:
        raise ValueError(
            "`branch_scale` must be a number from 0 on. "
            f"Received: branch_scale={branch_scale}"
        )
