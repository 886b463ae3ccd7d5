"""AlexNet for small images."""

import keras

from keras_bdl.models import Model

# Height and width of the filters, how many as a multiple of those of the
# network, strides, and whether a max pooling follows.
CONVOLUTIONS = (
    (11, 1, 4, True),
    (5, 3, 1, True),
    (3, 6, 1, False),
    (3, 4, 1, False),
    (3, 4, 1, True),
)


def AlexNet(
    input_shape=(32, 32, 3),
    classes: int = 10,
    filters: int = 64,
    activation="relu",
    include_top: bool = True,
    classifier_activation=None,
    name: str | None = None,
):
    """Makes an AlexNet for small images.

    The five convolutions of an AlexNet, with a max pooling after the first,
    the second and the last, and one dense layer in place of three: of an
    image of 32 x 32 a single pixel is left then. There is neither BatchNorm
    nor local response normalisation. With the defaults it has 2,472,266
    weights.

    The VOGN paper trains "AlexNet" on CIFAR-10 and says no more; the sizes of
    the layers are those of its code. What is ours is the initialisation,
    `"he_normal"`, the padding of Keras, 3 and 4 pixels in the first
    convolution where the code has 5, and what makes no difference for 32 x 32
    pixels: poolings with padding, and the average over what they leave.

    Args:
        input_shape: Shape of an image; height and width may be `None`.
            Defaults to `(32, 32, 3)`.
        classes: Number of classes. Defaults to `10`.
        filters: Filters of the first convolution; the later ones have 3, 6, 4
            and 4 times as many. Defaults to `64`.
        activation: Activation of the convolutions, as Keras takes it.
            Defaults to `"relu"`.
        include_top: Whether to end in the average over the image and the
            classifier. Defaults to `True`.
        classifier_activation: Activation of the classifier. Defaults to
            `None`, logits.
        name: Name of the model. Defaults to `None`: `"alexnet"`.

    Returns:
        A `keras_bdl.Model`. There are no pretrained weights.

    Example:

    ```python
    model = keras_bdl.applications.AlexNet()
    dropout = keras_bdl.convert(model, "mc_dropout", rate=0.1)
    ```

    Reference:
        - Osawa et al., [Practical Deep Learning with Bayesian Principles](
          https://arxiv.org/abs/1906.02506), section 4 and appendix C
        - Krizhevsky, [One Weird Trick for Parallelizing Convolutional Neural
          Networks](https://arxiv.org/abs/1404.5997), whose filters these are
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
