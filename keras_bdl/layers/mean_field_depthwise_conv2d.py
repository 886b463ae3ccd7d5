"""Convolution of every channel by itself with independent Gaussian weights."""

import keras

from keras_bdl.layers.mean_field_layer import MeanFieldLayer


@keras.saving.register_keras_serializable(package="keras_bdl")
class MeanFieldDepthwiseConv2D(MeanFieldLayer, keras.layers.DepthwiseConv2D):
    """Convolution of every channel by itself with independent Gaussian weights.

    In training the kernel and the bias are drawn, once for all calls of a
    forward pass, and KL(q || p) / N is added to the losses; otherwise they
    are the means. See `keras_bdl.layers.MeanFieldLayer`.

    Args:
        *args: As of `keras.layers.DepthwiseConv2D`.
        **kwargs: As of `keras.layers.DepthwiseConv2D`, and as of
            `MeanFieldLayer`: `prior`, `bias_prior`, `variational_bias`,
            `estimator`, `rho_initializer`, `dataset_size`, `seed`,
            `truncation`.

    Example:

    ```python
    layer = keras_bdl.layers.MeanFieldDepthwiseConv2D(3, padding="same")
    ```
    """
