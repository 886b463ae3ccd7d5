"""Creation of metrics, objective and optimizer before the first step."""

import keras
import tensorflow as tf

from keras_bdl import _keras
from keras_bdl._inner_optimizer import inner_optimizer
from keras_bdl._protocols import OwnsPosterior
from keras_bdl._protocols import OwnsVariables
from keras_bdl.posteriors._covered_weights import at_positions


def build_posterior(model):
    """Builds the variables of a posterior, so that `load_weights` finds them.

    Args:
        model: A built and compiled model.
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
    """Builds the objective and the optimizer, for all trained variables.

    If a training step creates variables, TensorFlow traces the step twice.

    Args:
        model: A built model, compiled or not.
    """
    of_objective = build_objective(model)
    optimizer = getattr(model, "optimizer", None)
    if optimizer is not None and not optimizer.built:
        with tf.init_scope(), model.distribute_strategy.scope():
            optimizer.build([*variables_to_build(model), *of_objective])


def variables_to_build(model):
    """Returns the weights for which objective and optimizer get variables.

    These are the trainable weights. A model from a file may have been frozen
    after its training: then these are the weights of the training, so that the
    file fits.

    Args:
        model: A built model, compiled or not.
    """
    for method in (getattr(model, "objective", None), inner_optimizer(model)):
        record = getattr(method, "trained_weights", None)
        if record is not None and record.built and record.fits(model):
            return at_positions(model, record.built)
    return model.trainable_variables


def build_metrics(model, dataset):
    """Builds the compiled metrics of a model before a step is traced.

    Otherwise Keras creates the variables of the metrics in the first step, and
    TensorFlow traces that step twice. With a deep network, the second trace
    takes a good part of the first epoch. The function does nothing for a model
    with several outputs, which also tracks the loss of each output. It does
    nothing for a subclass, whose outputs are unknown before the first call.

    Args:
        model: A compiled model.
        dataset: The `tf.data.Dataset` of the steps.
    """
    metrics = _keras.compile_metrics(model)
    outputs = getattr(model, "outputs", None) or ()  # a subclass has none
    if metrics is None or metrics.built or len(outputs) != 1:
        return
    _, y, _ = keras.utils.unpack_x_y_sample_weight(dataset.element_spec)
    shape = getattr(y, "shape", None)
    if shape is not None and shape.rank is not None:
        metrics.build(keras.KerasTensor(shape, y.dtype.name), outputs[0])
