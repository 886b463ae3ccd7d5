"""The loss that a function was given, as a model would compute it."""

import weakref

import keras


def check_loss(model, loss):
    """Raises an error where there is neither a loss nor a compiled one."""
    if loss is None and getattr(model, "loss", None) is None:
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


def loss_reference(loss):
    """Returns what equals that of the same loss, and does not hold it."""
    try:
        return weakref.ref(loss)
    except TypeError:  # a string, list or dict, which is equal to its like
        return loss
