"""Residual networks that are wide instead of deep."""

from keras_bdl.applications.architecture import BASIC
from keras_bdl.applications.architecture import Architecture
from keras_bdl.applications.architecture import Stage
from keras_bdl.applications.architecture import Stem
from keras_bdl.applications.architecture import blocks_of_depth
from keras_bdl.applications.preact_resnet import PreActResNet


def WideResNet(
    depth: int,
    width: int,
    input_shape=(32, 32, 3),
    classes: int = 10,
    filters: int = 16,
    dropout_rate: float = 0.0,
    **kwargs,
):
    """Makes a wide residual network, for small images.

    A `PreActResNet` of three stages of n blocks, with `width` times as many
    filters in every block, but not in the first convolution.

    Args:
        depth: 6n + 4, such as 16, 28 or 40: here the convolutions of size 1
            that change the shapes are counted, too.
        width: How many times wider than a `PreActResNet` the blocks are.
        input_shape: See `PreActResNet`. Defaults to `(32, 32, 3)`.
        classes: See `PreActResNet`. Defaults to `10`.
        filters: Filters of the first convolution; the stages have `width`,
            `2 * width` and `4 * width` times as many. Defaults to `16`.
        dropout_rate: Rate of a dropout between the two convolutions of a
            block; the paper has 0.3. Defaults to `0.0`, no dropout.
        **kwargs: As of `PreActResNet`.

    Returns:
        A `keras_bdl.Model`. There are no pretrained weights.

    Example:

    ```python
    model = keras_bdl.applications.WideResNet(16, 4, dropout_rate=0.3)
    ```

    Reference:
        - Zagoruyko and Komodakis, [Wide Residual Networks](
          https://arxiv.org/abs/1605.07146), table 1
    """
    if isinstance(width, bool) or not isinstance(width, int) or width < 1:
        raise ValueError(
            f"`width` must be a positive integer. Received: width={width!r}"
        )
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
    return PreActResNet(
        architecture,
        input_shape,
        classes,
        filters,
        dropout_rate=dropout_rate,
        **{"name": f"wide_resnet_{depth}_{width}", **kwargs},
    )


def WideResNet28x10(input_shape=(32, 32, 3), classes: int = 10, **kwargs):
    """Makes the wide residual network of depth 28 and width 10.

    With the defaults it has 36,479,194 trainable weights.

    Args:
        input_shape: See `PreActResNet`. Defaults to `(32, 32, 3)`.
        classes: See `PreActResNet`. Defaults to `10`.
        **kwargs: As of `WideResNet`.

    Returns:
        A `keras_bdl.Model`.

    Example:

    ```python
    model = keras_bdl.applications.WideResNet28x10(classes=100)
    ```

    Reference:
        - Maddox et al., [A Simple Baseline for Bayesian Uncertainty in Deep
          Learning](https://arxiv.org/abs/1902.02476), section 5. In its
          code the convolutions have biases, too.
    """
    return WideResNet(28, 10, input_shape, classes, **kwargs)
