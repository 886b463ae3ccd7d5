"""The loss that a function was given, as a model would compute it."""

import weakref

import keras

from keras_bdl.likelihoods.loss_check import check_reductions
from keras_bdl.likelihoods.loss_check import one_value_each

_OWNER = "this diagnostic"


def check_loss(model, loss):
    """Raises an error unless there is a loss, given or compiled, with a mean.

    Args:
        model: A Keras model.
        loss: As `compile` takes it, or `None`: the one it is compiled with.
    """
    loss = getattr(model, "loss", None) if loss is None else loss
    check_reductions(_OWNER, loss)
    if loss is None:
        raise ValueError(
            "`loss` must be the negative log-likelihood where the model is "
            "not compiled with one. Received: loss=None"
        )


def compiled_loss(loss):
    """Returns the function that a model compiled with this loss calls."""
    # By an empty model: Keras has no public way to it, and this one cares
    # for names, functions, several outputs, and targets without a last axis.
    model = keras.Sequential()
    model.compile("sgd", loss)
    return model._compile_loss


def mean_loss(compile_loss, y, y_pred, sample_weight=None):
    """Returns the mean loss of a batch, from one value for each example.

    Args:
        compile_loss: What `compiled_loss` returned, or that of a model.
        y: The targets.
        y_pred: The outputs.
        sample_weight: The weights of the examples. Defaults to `None`.
    """
    with one_value_each(_OWNER, compile_loss):
        return compile_loss(y, y_pred, sample_weight)


def loss_reference(loss):
    """Returns what equals that of the same loss, and does not hold it."""
    try:
        return weakref.ref(loss)
    except TypeError:  # a string, list or dict, which is equal to its like
        return loss
