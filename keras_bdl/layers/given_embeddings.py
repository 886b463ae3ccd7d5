"""Embeddings whose means are given."""


class GivenEmbeddings:
    """Adds the argument `weights` of `keras.layers.Embedding`.

    To be mixed in before `MeanFieldLayer` or `RadialLayer`. An embedding
    selects rows and multiplies nothing, so `"weight"` is the only estimator.

    Args:
        *args: As of the layer.
        weights: The means to start with, of shape `(input_dim, output_dim)`.
            Defaults to `None`: the means are initialised.
        **kwargs: As of the layer.
    """

    estimators = ("weight",)

    def __init__(self, *args, weights=None, **kwargs):
        super().__init__(*args, **kwargs)
        if weights is not None:
            self.build()
            self.embeddings_mean.assign(weights)
