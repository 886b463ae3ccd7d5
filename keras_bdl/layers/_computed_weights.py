"""Base classes of layers that compute a weight instead of storing it."""

from collections.abc import Callable

import keras
import numpy as np

from keras_bdl._aliases import ArrayLike
from keras_bdl._inherited_arguments import InheritedArguments


class ComputedWeights(InheritedArguments):
    """Lets a Keras layer compute its kernel instead of storing a variable.

    The class raises an error for arguments that need a variable, and saves the
    variables from which the kernel is computed. Derive from this class first,
    then from the Keras layer.

    Attributes:
        sources: Names of the variables that make the kernel, for messages.
        refused: Arguments of the layer that must stay `None`.
        hint: Arguments to use instead, for messages.
    """

    sources: str | None = None
    refused: tuple[str, ...] = ("lora_rank", "quantization_mode")
    hint = ""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        for name in self.refused:
            value = getattr(self, name, None)
            if value is not None:
                raise ValueError(self._unsupported(name, value))

    def enable_lora(self, rank, *args, **kwargs):
        """Raises an error: LoRA needs a kernel that is a variable."""
        raise ValueError(self._unsupported("lora_rank", rank))

    def quantize(self, mode=None, *args, **kwargs):
        """Raises an error: quantization needs a kernel that is a variable."""
        # `keras.Model.quantize` catches this type, and warns.
        raise NotImplementedError(self._unsupported("quantization_mode", mode))

    def save_own_variables(self, store):
        """Saves the weights of the layer under their numbers."""
        # The method of the Keras layer would save the kernel.
        keras.layers.Layer.save_own_variables(self, store)

    def load_own_variables(self, store):
        """Loads the weights that `save_own_variables` saved."""
        keras.layers.Layer.load_own_variables(self, store)

    def _unsupported(self, name, value):
        return (
            f"`{name}` needs a kernel that is a variable, and "
            f"`{type(self).__name__}` computes its kernel from {self.sources}. "
            f"Leave out `{name}`{self.hint}. Received: {name}={value!r}"
        )


class GivenEmbeddings(InheritedArguments):
    """Adds the argument `weights` of `keras.layers.Embedding`.

    Derive from this class before `MeanFieldLayer` or `RadialLayer`. An
    embedding selects rows and multiplies nothing, so `"weight"` is the only
    estimator.

    Args:
        *args: Arguments of the layer.
        weights: Initial means, of shape `(input_dim, output_dim)`, or a list
            with this array. Defaults to `None`: `embeddings_initializer`
            draws the means.
        **kwargs: Arguments of the layer.
    """

    estimators: tuple[str, ...] = ("weight",)
    build: Callable
    embeddings_mean: keras.Variable

    def __init__(self, *args, weights: ArrayLike | None = None, **kwargs):
        super().__init__(*args, **kwargs)
        if weights is not None:
            self.build()
            self.embeddings_mean.assign(_single_array(weights))


def _single_array(weights):
    """Returns the array in a list of one array; returns others unchanged."""
    # A list of one row of numbers is itself an array.
    if isinstance(weights, list) and len(weights) == 1:
        return weights[0] if len(np.shape(weights[0])) == 2 else weights
    return weights
