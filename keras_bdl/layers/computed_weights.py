"""Base classes of layers that compute a weight instead of storing it."""

import keras


class ComputedWeights:
    """Lets a Keras layer compute with a kernel that is no variable.

    Refuses what needs one, and saves the variables that there are. To be
    mixed in before the layer.

    Attributes:
        sources: What the kernel is computed from, for messages.
        refused: Arguments of the layer that have to stay `None`.
        hint: What there is in place of them, for messages.
    """

    sources = None
    refused = ("lora_rank", "quantization_mode")
    hint = ""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        for name in self.refused:
            value = getattr(self, name, None)
            if value is not None:
                raise ValueError(self._unsupported(name, value))

    def enable_lora(self, rank, *args, **kwargs):
        """Raises an error."""
        raise ValueError(self._unsupported("lora_rank", rank))

    def quantize(self, mode=None, *args, **kwargs):
        """Raises an error."""
        # Of this type, so that `keras.Model.quantize` can go on and warn.
        raise NotImplementedError(self._unsupported("quantization_mode", mode))

    def save_own_variables(self, store):
        """Saves the weights in their order."""
        # Past the layer, which would save its kernel.
        keras.layers.Layer.save_own_variables(self, store)

    def load_own_variables(self, store):
        """Loads what `save_own_variables` saved."""
        keras.layers.Layer.load_own_variables(self, store)

    def _unsupported(self, name, value):
        return (
            f"`{name}` needs a kernel that is a variable, and "
            f"`{type(self).__name__}` computes its kernel from {self.sources}. "
            f"Leave it out{self.hint}. Received: {name}={value!r}"
        )


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
