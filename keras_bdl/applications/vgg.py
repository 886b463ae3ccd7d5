"""VGG-16, without the dense layers that hold most of its weights."""

import keras

from keras_bdl.models import Model

# Convolutions, and their filters as a multiple of those of the network; a
# max pooling follows each line.
STAGES = ((2, 1), (2, 2), (3, 4), (3, 8), (3, 8))


def VGG16(
    input_shape=(224, 224, 3),
    classes: int = 1000,
    filters: int = 64,
    include_top: bool = True,
    classifier_activation=None,
    name: str | None = None,
):
    """Makes a VGG-16 that ends in the means and maxima over the image.

    Thirteen convolutions with ReLU, and five max poolings between them. The
    mean and the maximum of every channel, side by side, go into one dense
    layer; the published network has three, with nine tenths of its weights.
    There is no BatchNorm.

    It becomes Bayesian by `keras_bdl.convert`. The Radial paper takes 46
    filters then, with which mean and scale of all weights are about as many
    numbers as the weights of the network with 64 filters.

    Args:
        input_shape: Shape of an image; height and width may be `None`.
            Defaults to `(224, 224, 3)`.
        classes: Number of classes. Defaults to `1000`.
        filters: Filters of the first stage; the later ones have 2, 4, 8 and
            8 times as many. Defaults to `64`, with which the convolutions
            have 14,714,688 weights.
        include_top: Whether to end in the poolings and the classifier.
            Defaults to `True`.
        classifier_activation: Activation of the classifier. Defaults to
            `None`, logits.
        name: Name of the model. Defaults to `None`: `"vgg_16"`.

    Returns:
        A `keras_bdl.Model`. There are no pretrained weights.

    Example:

    ```python
    network = keras_bdl.applications.VGG16((512, 512, 3), 2, filters=46)
    model = keras_bdl.convert(network, "radial")
    ```

    Reference:
        - Farquhar et al., [Radial Bayesian Neural Networks](
          https://arxiv.org/abs/1907.00865), appendix D.1
        - Simonyan and Zisserman, [Very Deep Convolutional Networks](
          https://arxiv.org/abs/1409.1556), configuration D
    """
    inputs = x = keras.Input(input_shape)
    for i, (convolutions, width) in enumerate(STAGES, start=1):
        for j in range(1, convolutions + 1):
            x = keras.layers.Conv2D(
                filters * width,
                3,
                padding="same",
                activation="relu",
                kernel_initializer="he_normal",
                name=f"stage{i}_conv{j}",
            )(x)
        x = keras.layers.MaxPooling2D(name=f"stage{i}_pool")(x)
    if include_top:
        means = keras.layers.GlobalAveragePooling2D(name="avg_pool")(x)
        maxima = keras.layers.GlobalMaxPooling2D(name="max_pool")(x)
        x = keras.layers.Concatenate(name="pools")([means, maxima])
        x = keras.layers.Dense(
            classes, classifier_activation, name="predictions"
        )(x)
    return Model(inputs, x, name=name or "vgg_16")
