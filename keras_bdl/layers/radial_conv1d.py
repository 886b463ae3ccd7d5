"""Convolution of sequences with Radial weights."""

import keras

from keras_bdl.layers.radial_layer import RadialLayer


@keras.saving.register_keras_serializable(package="keras_bdl")
class RadialConv1D(RadialLayer, keras.layers.Conv1D):
    """Convolution of sequences with Radial weights.

    In training the kernel and the bias are drawn, each with a direction and a
    length of its own, and KL(q || p) / N is added to the losses; otherwise
    they are the means. See `keras_bdl.layers.RadialLayer`.

    Args:
        *args: As of `keras.layers.Conv1D`.
        **kwargs: As of `keras.layers.Conv1D`, and as of `RadialLayer`:
            `prior`, `bias_prior`, `variational_bias`, `estimator`,
            `rho_initializer`, `dataset_size`, `seed`.

    Example:

    ```python
    layer = keras_bdl.layers.RadialConv1D(32, 3, padding="causal")
    ```
    """
