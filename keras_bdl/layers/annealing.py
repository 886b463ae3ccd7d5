"""The weight of the KL and of the noise, which callbacks turn up slowly."""

import keras

from keras_bdl import _keras


class Annealing:
    """Numbers of a variational layer that callbacks change.

    They are variables, so that nothing is traced again, and hidden in this
    plain object, so that they are no weights of the layer.

    Attributes:
        kl_weight: Factor of the KL in the loss; 1 is the evidence bound.
        kl_schedule: A function without arguments that returns this factor in
            the graph, in place of `kl_weight`, or `None`.
        noise: Factor of the noise of the weights in the outputs; 0 is
            training of the means, by the likelihood alone.
    """

    def __init__(self):
        self.kl_weight = _number("kl_weight")
        self.kl_schedule = None
        self.noise = _number("noise")

    def kl_factor(self):
        """Returns what the KL is multiplied with in the loss."""
        if self.kl_schedule is not None:
            return self.noise * self.kl_schedule()
        return self.noise * self.kl_weight


def end_annealing(model):
    """Goes back to the bound in all layers of a model."""
    found = [getattr(x, "annealing", None) for x in _keras.all_layers(model)]
    for annealing in found:
        if not isinstance(annealing, Annealing):
            continue
        annealing.kl_weight.assign(1.0)
        annealing.noise.assign(1.0)
        if annealing.kl_schedule is not None:
            annealing.kl_schedule = None
            model.train_function = None  # it has the schedule built in


def _number(name):
    return keras.Variable(
        1.0, dtype="float32", trainable=False, autocast=False, name=name
    )


def annealed_layers(callback):
    """Returns the `Annealing` of every layer of a callback's model."""
    found = [
        getattr(layer, "annealing", None)
        for layer in _keras.all_layers(callback.model)
    ]
    found = [one for one in found if isinstance(one, Annealing)]
    if not found:
        raise ValueError(
            f"`{type(callback).__name__}` needs a model with variational "
            "layers, such as `keras_bdl.layers.MeanFieldDense`. "
            f"Received: model={callback.model.name!r} without one"
        )
    return found
