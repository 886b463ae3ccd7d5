"""Residual networks that are wide instead of deep."""

from typing import Any

from keras_bdl._aliases import ImageShape
from keras_bdl._arguments import check_count
from keras_bdl._inherited_arguments import inherits_arguments
from keras_bdl.applications._architecture import BASIC
from keras_bdl.applications._architecture import Architecture
from keras_bdl.applications._architecture import Stage
from keras_bdl.applications._architecture import Stem
from keras_bdl.applications._architecture import blocks_of_depth
from keras_bdl.applications._preact_resnet import PreActResNet
from keras_bdl.models import Model


@inherits_arguments(PreActResNet)
def WideResNet(
    depth: int,
    width: int,
    input_shape: ImageShape = (32, 32, 3),
    *,
    classes: int = 10,
    filters: int = 16,
    name: str | None = None,
    **options: Any,
) -> Model:
    """Makes a wide residual network for small images.

    Use it to repeat the experiments of the SWAG paper. The network is a
    `PreActResNet` of three stages of n blocks. The argument `width` multiplies
    the number of filters in every block, but not in the first convolution.

    Args:
        depth: 6n + 4, such as 16, 28 or 40. This count includes the
            convolutions of size 1 that change the shape.
        width: Factor of the number of filters in the blocks.
        input_shape: Shape of an image. Height and width may be `None`.
            Defaults to `(32, 32, 3)`.
        classes: Number of classes. Defaults to `10`.
        filters: Number of filters of the first convolution. The stages have
            `width`, `2 * width` and `4 * width` times this number. Defaults to
            `16`.
        name: Name of the model. Defaults to `None`,
            `"wide_resnet_<depth>_<width>"`.
        **options: Other arguments of `PreActResNet`. The paper uses
            `dropout_rate=0.3`.

    Returns:
        A `keras_bdl.Model`. The weights start at random.

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
    return PreActResNet(
        architecture,
        input_shape,
        classes,
        filters=filters,
        name=name or f"wide_resnet_{depth}_{width}",
        **options,
    )


@inherits_arguments(WideResNet, without=("depth", "width"))
def WideResNet28x10(
    input_shape: ImageShape = (32, 32, 3), classes: int = 10, **options: Any
) -> Model:
    """Makes the wide residual network of depth 28 and width 10.

    With the defaults the network has 36,479,194 trainable weights.

    Args:
        input_shape: Shape of an image. Height and width may be `None`.
            Defaults to `(32, 32, 3)`.
        classes: Number of classes. Defaults to `10`.
        **options: Other arguments of `WideResNet`.

    Returns:
        A `keras_bdl.Model`. The weights start at random.

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
