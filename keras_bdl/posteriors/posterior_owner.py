"""The objective or optimizer that holds the posterior of a model."""

from keras_bdl.loss_scaling import inner_optimizer
from keras_bdl.protocols import OwnsPosterior
from keras_bdl.protocols import OwnsVariables


def posterior_owner(model):
    """Returns the objective or optimizer that learns deviations, or `None`.

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
