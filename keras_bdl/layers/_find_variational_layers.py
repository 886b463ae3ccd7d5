"""The layers of a model whose weights have a distribution."""

from keras_bdl import _keras
from keras_bdl._protocols import SamplesWeights
from keras_bdl.layers._variational import Variational


def variational_layers(model):
    """Returns the `Variational` layers of a model. No layer appears twice.

    Args:
        model: A Keras model, built or not.
    """
    return _layers_of(model, Variational)


def sampling_layers(model):
    """Returns the layers of a model that draw their weights.

    The result contains variational layers, and layers of users that have the
    method of `keras_bdl._protocols.SamplesWeights`. No layer appears twice.

    Args:
        model: A Keras model, built or not.
    """
    return _layers_of(model, SamplesWeights)


def annealed_layers(callback):
    """Returns the `Annealing` of every variational layer.

    Args:
        callback: The callback that changes the annealing, with its model.
    """
    found = [layer.annealing for layer in variational_layers(callback.model)]
    if not found:
        raise ValueError(
            f"`{type(callback).__name__}` needs a model with variational "
            "layers, such as `keras_bdl.layers.MeanFieldDense`. "
            f"Received: model={callback.model.name!r} without one"
        )
    return found


def end_annealing(model) -> bool:
    """Gives the KL and the noise their full weight in all layers.

    Args:
        model: A Keras model.

    Returns:
        `True` if a layer had a schedule. A training step that was traced before
        this call still contains the schedule.
    """
    had_schedule = False
    for layer in variational_layers(model):
        annealing = layer.annealing
        annealing.kl_weight.assign(1.0)
        annealing.noise.assign(1.0)
        had_schedule |= annealing.kl_schedule is not None
        annealing.kl_schedule = None
    return had_schedule


def _layers_of(model, kind):
    return [one for one in _keras.all_layers(model) if isinstance(one, kind)]
