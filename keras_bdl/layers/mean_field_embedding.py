"""Embedding with independent Gaussian weights."""

import keras

from keras_bdl.layers.given_embeddings import GivenEmbeddings
from keras_bdl.layers.mean_field_layer import MeanFieldLayer


@keras.saving.register_keras_serializable(package="keras_bdl")
class MeanFieldEmbedding(
    GivenEmbeddings, MeanFieldLayer, keras.layers.Embedding
):
    """Embedding with independent Gaussian weights.

    In training the vectors of all integers are drawn, once for all calls of a
    forward pass, and KL(q || p) / N is added to the losses; otherwise they
    are the means. See `keras_bdl.layers.MeanFieldLayer`.

    Args:
        *args: As of `keras.layers.Embedding`.
        weights: The means to start with, of shape `(input_dim, output_dim)`.
            Defaults to `None`.
        **kwargs: As of `keras.layers.Embedding` and of `MeanFieldLayer`:
            `prior`, `rho_initializer`, `dataset_size`, `seed`, `truncation`.
            The only `estimator` is `"weight"`.

    Example:

    ```python
    layer = keras_bdl.layers.MeanFieldEmbedding(10_000, 64)
    vectors = layer(tokens, training=True)  # of one draw
    ```
    """
