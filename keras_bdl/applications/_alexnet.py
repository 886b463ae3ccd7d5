"""AlexNet for small images."""

import keras

from keras_bdl._aliases import Activation
from keras_bdl._aliases import ImageShape
from keras_bdl.models import Model

# For each convolution: size of the filters, their number as a multiple of the
# argument `filters`, strides, and whether a max pooling follows.
CONVOLUTIONS = (
    (11, 1, 4, True),
    (5, 3, 1, True),
    (3, 6, 1, False),
    (3, 4, 1, False),
    (3, 4, 1, True),
)


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

    Returns:
        A `keras_bdl.Model`. The weights start at random.

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
