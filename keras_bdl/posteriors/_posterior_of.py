"""The posterior that a trained model holds, and the method that fits it.

The method is the objective or the optimizer.
"""

from typing import Any

import keras

from keras_bdl._keras import inner_optimizer
from keras_bdl._protocols import OwnsPosterior
from keras_bdl._protocols import OwnsVariables
from keras_bdl.layers._find_variational_layers import sampling_layers
from keras_bdl.posteriors._layerwise import Layerwise
from keras_bdl.posteriors._posterior import Posterior


def posterior_of(model: keras.Model) -> Posterior:
    """Returns the posterior that a trained model holds.

    Use this function after training with a natural-gradient optimizer, with
    an objective or with variational layers, to save the posterior or to pass
    it to another function. `keras_bdl.predict` finds the posterior itself.

    The function returns the first posterior that exists: that of the objective,
    of the optimizer (also inside a `LossScaleOptimizer`) or of the layers. A
    callback such as `keras_bdl.SWAG` has its own attribute `posterior`.

    Args:
        model: A compiled Keras model after training.

    Example:

    ```python
    posterior = keras_bdl.posterior_of(net)
    posterior.save("posterior.bdl")
    ```
    """
    posterior = held_posterior(model)
    if posterior is None:
        optimizer = inner_optimizer(model)
        raise ValueError(
            "`model` must hold a posterior: in its optimizer, such as "
            "`keras_bdl.VOGN`, in its objective or in variational layers. "
            "Pass the `posterior` attribute of a callback such as "
            "`keras_bdl.SWAG` directly. "
            f"Received: model={getattr(model, 'name', model)!r}, "
            f"optimizer={type(optimizer).__name__}"
        )
    return posterior


def held_posterior(
    model: keras.Model, *, trained_with_noise: bool = False
) -> Posterior | None:
    """Returns the posterior that a model holds, or `None`.

    Args:
        model: A compiled Keras model.
        trained_with_noise: Whether to skip an optimizer or objective that
            trained the weights without noise, such as `keras_bdl.OGN`.
            Defaults to `False`.
    """
    for method in (getattr(model, "objective", None), inner_optimizer(model)):
        noisy = getattr(method, "noisy_training", True)
        posterior = getattr(method, "posterior", None)
        if callable(posterior) and (noisy or not trained_with_noise):
            return posterior(model)
    if sampling_layers(model):
        return Layerwise(model)
    return None


def posterior_owner(model: keras.Model) -> Any:
    """Returns the objective or optimizer that fits a posterior, or `None`.

    Such a method keeps the width of the posterior in its own variables.

    Args:
        model: A compiled model, built or not.
    """
    objective = getattr(model, "objective", None)
    if isinstance(objective, OwnsVariables) and (
        objective.trainable_variables or not objective.built
    ):
        return objective
    optimizer = inner_optimizer(model)
    return optimizer if isinstance(optimizer, OwnsPosterior) else None
