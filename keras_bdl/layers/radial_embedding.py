"""Embedding with Radial weights."""

import keras

from keras_bdl.layers.given_embeddings import GivenEmbeddings
from keras_bdl.layers.radial_layer import RadialLayer


@keras.saving.register_keras_serializable(package="keras_bdl")
class RadialEmbedding(GivenEmbeddings, RadialLayer, keras.layers.Embedding):
    """Embedding with Radial weights.

    In training the vectors of all integers are drawn, with one direction and
    one length for the whole table, and KL(q || p) / N is added to the losses.
    Otherwise the vectors are the means. See `keras_bdl.layers.RadialLayer`.

    Args:
        *args: As of `keras.layers.Embedding`.
        weights: The means to start with, of shape `(input_dim, output_dim)`.
            Defaults to `None`.
        **kwargs: As of `keras.layers.Embedding` and of `RadialLayer`:
            `prior`, `rho_initializer`, `dataset_size`, `seed`. The only
            `estimator` is `"weight"`.

    Example:

    ```python
    layer = keras_bdl.layers.RadialEmbedding(10_000, 64)
    vectors = layer(tokens, training=True)  # of one draw
    ```
    """
