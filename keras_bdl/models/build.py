"""Makes the variables that a training step changes."""

import tensorflow as tf

from keras_bdl.loss_scaling import inner_optimizer
from keras_bdl.protocols import OwnsPosterior
from keras_bdl.protocols import OwnsVariables


def build_posterior(model):
    """Builds what `load_weights` may find the values of a posterior for.

    Args:
        model: A built model, compiled.
    """
    build_objective(model)
    if isinstance(inner_optimizer(model), OwnsPosterior):
        build_optimizer(model)


def build_objective(model):
    """Builds the objective of a model, and returns its variables.

    Args:
        model: A built model, compiled or not.
    """
    objective = getattr(model, "objective", None)
    if not isinstance(objective, OwnsVariables):
        return []
    if not objective.built:
        with tf.init_scope(), model.distribute_strategy.scope():
            objective.build(model)
    return objective.trainable_variables


def build_optimizer(model):
    """Builds objective and optimizer, for all that they will train.

    Variables that are made in a training step would have it traced twice.

    Args:
        model: A built model, compiled or not.
    """
    of_objective = build_objective(model)
    optimizer = getattr(model, "optimizer", None)
    if optimizer is not None and not optimizer.built:
        with tf.init_scope(), model.distribute_strategy.scope():
            optimizer.build([*model.trainable_variables, *of_objective])
