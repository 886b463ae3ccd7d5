"""LeNet-5, a small network with two convolutions."""

import keras

from keras_bdl._aliases import Activation
from keras_bdl._aliases import ImageShape
from keras_bdl.models import Model


def LeNet5(
    input_shape: ImageShape = (32, 32, 3),
    classes: int = 10,
    *,
    activation: Activation = "relu",
    padding: str = "valid",
    classifier_activation: Activation = None,
    name: str | None = None,
) -> Model:
    """Makes a LeNet-5.

    Use LeNet-5 as a small, fast network for small images. LeNet-5 has two
    convolutions of size 5 with 6 and 16 filters, a max pooling after each, and
    dense layers of 120 and 84 units before the classifier. With the defaults
    the network has 62,006 weights.

    The VOGN paper says only "LeNet-5". This function makes the network of the
    paper's code, with ReLU and max pooling. Only the initialisation,
    `"he_normal"`, differs from the code. The original LeNet-5 has sigmoidal
    activations, average poolings with weights, and convolutions that read only
    some channels.

    Args:
        input_shape: Shape of an image. Defaults to `(32, 32, 3)`.
        classes: Number of classes. Defaults to `10`.
        activation: Activation of all layers but the last. Defaults to
            `"relu"`.
        padding: Padding of the convolutions. `"valid"` needs a height and
            width of at least 16 pixels. `"same"` accepts smaller images, such
            as digits of 8 x 8. Defaults to `"valid"`.
        classifier_activation: Activation of the classifier. Defaults to
            `None`, logits.
        name: Name of the model. Defaults to `None`, `"lenet_5"`.

    Returns:
        A `keras_bdl.Model`. The weights start at random.

    Example:

    ```python
    model = keras_bdl.applications.LeNet5()
    model.compile(keras_bdl.VOGN(), loss)
    ```

    Reference:
        - Osawa et al., [Practical Deep Learning with Bayesian Principles](
          https://arxiv.org/abs/1906.02506), section 4 and appendix C
    """
    inputs = x = keras.Input(input_shape)
    for k, filters in enumerate((6, 16), start=1):
        x = keras.layers.Conv2D(
            filters,
            5,
            padding=padding,
            activation=activation,
            kernel_initializer="he_normal",
            name=f"conv{k}",
        )(x)
        x = keras.layers.MaxPooling2D(padding=padding, name=f"pool{k}")(x)
    x = keras.layers.Flatten(name="flatten")(x)
    for k, units in enumerate((120, 84), start=1):
        x = keras.layers.Dense(
            units,
            activation,
            kernel_initializer="he_normal",
            name=f"dense{k}",
        )(x)
    x = keras.layers.Dense(classes, classifier_activation, name="predictions")(
        x
    )
    return Model(inputs, x, name=name or "lenet_5")
