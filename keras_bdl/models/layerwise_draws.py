"""Draws of a model whose layers have distributions, inside a graph."""

import contextlib

from keras_bdl.layers import Variational


class LayerwiseDraws:
    """Evaluates and predicts with draws of all variational layers.

    A `DrawsFunctions`. A draw is one function: the same for every batch and
    replica, whatever the `estimator` of training. `keras_bdl.predict` with
    `keras_bdl.posteriors.Layerwise` does the same from outside of the graph.

    Args:
        layers: The layers.
    """

    def __init__(self, layers):
        self._layers = layers

    @classmethod
    def of(cls, model):
        """Returns the draws of a model, or `None` if no layer has any."""
        layers = [
            layer
            for layer in model._flatten_layers()
            if isinstance(layer, Variational) and layer.built
        ]
        return cls(layers) if layers else None

    def call_with_draw(self, model, x, draw):
        """Returns `model(x, training=False)` under one draw."""
        with contextlib.ExitStack() as stack:
            for layer in self._layers:
                stack.enter_context(layer.holding(draw))
            return model._call_for(x, training=False)
