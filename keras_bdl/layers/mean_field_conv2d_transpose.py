"""Transposed convolution of images with independent Gaussian weights."""

import keras

from keras_bdl.layers.mean_field_layer import MeanFieldLayer


@keras.saving.register_keras_serializable(package="keras_bdl")
class MeanFieldConv2DTranspose(MeanFieldLayer, keras.layers.Conv2DTranspose):
    """Transposed convolution of images with independent Gaussian weights.

    In training the kernel and the bias are drawn, once for all calls of a
    forward pass, and KL(q || p) / N is added to the losses; otherwise they
    are the means. See `keras_bdl.layers.MeanFieldLayer`.

    Args:
        *args: As of `keras.layers.Conv2DTranspose`.
        **kwargs: As of `keras.layers.Conv2DTranspose`, and as of
            `MeanFieldLayer`: `prior`, `bias_prior`, `variational_bias`,
            `estimator`, `rho_initializer`, `dataset_size`, `seed`,
            `truncation`.

    Example:

    ```python
    layer = keras_bdl.layers.MeanFieldConv2DTranspose(
        32, 3, strides=2, padding="same"
    )
    ```
    """
