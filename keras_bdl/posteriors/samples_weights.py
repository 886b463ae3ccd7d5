"""The protocol between `Layerwise` and a layer that draws its weights."""

from typing import Protocol
from typing import runtime_checkable


@runtime_checkable
class SamplesWeights(Protocol):
    """A layer that holds a distribution over its own weights.

    Without training it computes with the mean of that distribution, which is
    a variable (or several). A draw is what these variables are set to: the
    layer then *is* the draw, and nothing is traced again.
    """

    def sample_weights(self, seed: int) -> list:
        """Returns pairs `(variable, value)`, always of the same variables.

        Args:
            seed: Selects the draw; the values depend on nothing else but the
                variables of the layer.
        """
