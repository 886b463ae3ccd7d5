"""Residual networks with pre-activation, named by their depth."""

from keras_bdl.applications.architecture import BASIC
from keras_bdl.applications.architecture import BOTTLENECK
from keras_bdl.applications.architecture import Architecture
from keras_bdl.applications.preact_resnet import PreActResNet


def PreResNet(
    depth: int,
    input_shape=(32, 32, 3),
    classes: int = 10,
    filters: int = 16,
    bottleneck: bool | None = None,
    **kwargs,
):
    """Makes the PreResNet of a depth, for small images.

    A `PreActResNet` of three stages. Deep ones are made of bottlenecks, with
    convolutions of sizes 1, 3 and 1 of which the last has four times the
    filters; shallow ones have two convolutions of size 3 in a block.

    With the defaults, depth 20 has 272,282 trainable weights, 56 has 590,426,
    110 has 1,146,842 and 164 has 1,703,258. Without bottlenecks depth 56 has
    855,578 and 110 has 1,730,522.

    Args:
        depth: 9n + 2 with bottlenecks, such as 56, 110 or 164; otherwise
            6n + 2, such as 20.
        input_shape: See `PreActResNet`. Defaults to `(32, 32, 3)`.
        classes: See `PreActResNet`. Defaults to `10`.
        filters: See `PreActResNet`. Defaults to `16`.
        bottleneck: Whether the blocks are bottlenecks. Defaults to `None`:
            from depth 44 on, as in the experiments with SWAG. In the paper of
            the blocks only 164 has them, and 56 and 110 are
            `bottleneck=False`.
        **kwargs: As of `PreActResNet`.

    Returns:
        A `keras_bdl.Model`. There are no pretrained weights.

    Example:

    ```python
    model = keras_bdl.applications.PreResNet(164, classes=100)
    model.compile(
        keras.optimizers.SGD(0.1, momentum=0.9),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    )
    model.fit(x, y, epochs=300, callbacks=[keras_bdl.SWAG(start_epoch=160)])
    ```

    Reference:
        - He et al., [Identity Mappings in Deep Residual Networks](
          https://arxiv.org/abs/1603.05027)
        - Maddox et al., [A Simple Baseline for Bayesian Uncertainty in Deep
          Learning](https://arxiv.org/abs/1902.02476), section 5, which does
          not describe the blocks. Its code gives x itself, and not
          f(norm(x)), to the convolutions that change the shape.
    """
    if bottleneck is None:
        # What is no number is refused below.
        bottleneck = isinstance(depth, int) and depth >= 44
    branch = BOTTLENECK if bottleneck else BASIC
    architecture = Architecture.of_depth(depth, branch)
    kwargs = {"name": f"preresnet_{depth}", **kwargs}
    return PreActResNet(architecture, input_shape, classes, filters, **kwargs)
