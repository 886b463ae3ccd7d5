"""Dense layer with Radial weights."""

import keras

from keras_bdl.layers.radial_layer import RadialLayer


@keras.saving.register_keras_serializable(package="keras_bdl")
class RadialDense(RadialLayer, keras.layers.Dense):
    """Dense layer with Radial weights.

    In training the kernel and the bias are drawn, each with a direction and a
    length of its own, and KL(q || p) / N is added to the losses; otherwise
    they are the means. See `keras_bdl.layers.RadialLayer`.

    Args:
        *args: As of `keras.layers.Dense`.
        **kwargs: As of `keras.layers.Dense`, and as of `RadialLayer`:
            `prior`, `bias_prior`, `variational_bias`, `estimator`,
            `rho_initializer`, `dataset_size`, `seed`.

    Example:

    ```python
    layer = keras_bdl.layers.RadialDense(10, activation="softmax")
    probabilities = layer(features, training=True)  # of one draw
    ```
    """
