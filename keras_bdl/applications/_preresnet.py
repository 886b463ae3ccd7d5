"""PreResNet, residual networks of three stages with pre-activation."""

from typing import Any

from keras_bdl._aliases import ImageShape
from keras_bdl._arguments import check_bool
from keras_bdl._inherited_arguments import inherits_arguments
from keras_bdl.applications._architecture import BASIC
from keras_bdl.applications._architecture import BOTTLENECK
from keras_bdl.applications._architecture import Architecture
from keras_bdl.applications._preact_resnet import PreActResNet
from keras_bdl.models import Model


@inherits_arguments(PreActResNet)
def PreResNet(
    depth: int,
    input_shape: ImageShape = (32, 32, 3),
    classes: int = 10,
    *,
    bottleneck: bool | None = None,
    name: str | None = None,
    **options: Any,
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
        input_shape: Shape of an image. Height and width may be `None`.
            Defaults to `(32, 32, 3)`.
        classes: Number of classes. Defaults to `10`.
        bottleneck: Whether the blocks are bottlenecks. For depths 56 and 110
            of He et al., pass `False`: only their depth 164 has bottlenecks.
            Defaults to `None`: bottlenecks from depth 44 on, as in the SWAG
            paper.
        name: Name of the model. Defaults to `None`, `"preresnet_<depth>"`.
        **options: Other arguments of `PreActResNet`.

    Returns:
        A `keras_bdl.Model`. The weights start at random.

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
    return PreActResNet(
        architecture,
        input_shape,
        classes,
        name=name or f"preresnet_{depth}",
        **options,
    )
