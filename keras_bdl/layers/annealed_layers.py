"""The variational layers that a callback turns up slowly."""

from keras_bdl.layers.annealing import Annealing


def annealed_layers(callback):
    """Returns the `Annealing` of every layer of a callback's model."""
    found = [
        getattr(layer, "annealing", None)
        for layer in callback.model._flatten_layers()
    ]
    found = [one for one in found if isinstance(one, Annealing)]
    if not found:
        raise ValueError(
            f"`{type(callback).__name__}` needs a model with variational "
            "layers, such as `keras_bdl.layers.MeanFieldDense`. "
            f"Received: model={callback.model.name!r} without one"
        )
    return found
