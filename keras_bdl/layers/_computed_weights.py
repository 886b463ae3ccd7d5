"""The base class of layers that compute a weight instead of storing it."""

from typing import TYPE_CHECKING
from typing import Any

import keras

if TYPE_CHECKING:
    from keras.layers import Layer as _KerasLayer
else:
    _KerasLayer = object  # derived classes bring the layer of Keras


class ComputedWeights(_KerasLayer):
    """Lets a Keras layer compute its kernel instead of storing a variable.

    The class raises an error for arguments that need a variable, and saves the
    variables from which the kernel is computed. Derive from this class first,
    then from the Keras layer.
    """

    # Names of the variables that make the kernel, for messages.
    sources: str | None = None
    # Arguments of the layer that must stay `None`, and those to use instead.
    refused: tuple[str, ...] = ("lora_rank", "quantization_mode")
    hint = ""

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        for name in self.refused:
            value = getattr(self, name, None)
            if value is not None:
                raise ValueError(self._unsupported(name, value))

    def enable_lora(self, rank: int, *args: Any, **kwargs: Any) -> None:
        """Raises an error: LoRA needs a kernel that is a variable."""
        raise ValueError(self._unsupported("lora_rank", rank))

    def quantize(
        self, mode: str | None = None, *args: Any, **kwargs: Any
    ) -> None:
        """Raises an error: quantization needs a kernel that is a variable."""
        # `keras.Model.quantize` catches this type, and warns.
        raise NotImplementedError(self._unsupported("quantization_mode", mode))

    def save_own_variables(self, store: Any) -> None:
        """Saves the weights of the layer under their numbers."""
        # The method of the Keras layer would save the kernel.
        keras.layers.Layer.save_own_variables(self, store)

    def load_own_variables(self, store: Any) -> None:
        """Loads the weights that `save_own_variables` saved."""
        keras.layers.Layer.load_own_variables(self, store)

    def _unsupported(self, name: str, value: Any) -> str:
        return (
            f"`{name}` needs a kernel that is a variable, and "
            f"`{type(self).__name__}` computes its kernel from {self.sources}. "
            f"Leave out `{name}`{self.hint}. Received: {name}={value!r}"
        )
