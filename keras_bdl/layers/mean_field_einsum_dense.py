"""Dense layer between any axes with independent Gaussian weights."""

import keras

from keras_bdl.layers.mean_field_layer import MeanFieldLayer


@keras.saving.register_keras_serializable(package="keras_bdl")
class MeanFieldEinsumDense(MeanFieldLayer, keras.layers.EinsumDense):
    """Dense layer between any axes with independent Gaussian weights.

    In training the kernel and the bias are drawn, once for all calls of a
    forward pass, and KL(q || p) / N is added to the losses; otherwise they
    are the means. See `keras_bdl.layers.MeanFieldLayer`.

    Args:
        *args: As of `keras.layers.EinsumDense`.
        **kwargs: As of `keras.layers.EinsumDense`, and as of `MeanFieldLayer`:
            `prior`, `bias_prior`, `variational_bias`, `estimator`,
            `rho_initializer`, `dataset_size`, `seed`, `truncation`.

    Example:

    ```python
    layer = keras_bdl.layers.MeanFieldEinsumDense(
        "abc,cd->abd", output_shape=(None, 64), bias_axes="d"
    )
    ```
    """
