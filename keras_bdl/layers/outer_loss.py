"""Checks the loss that a layer's KL is added to."""

from keras_bdl.likelihoods.loss_check import check_likelihood


def check_outer_loss(layer):
    """Checks the compiled loss of the model that calls a layer.

    A plain `keras.Model` does not know that its layers have distributions.

    Args:
        layer: A variational layer, in a forward pass of training.
    """
    outer = layer._get_call_context().entry_layer
    if outer is layer:
        layer._maybe_reset_call_context()  # begun here, unless by `__call__`
    check_likelihood(f"`{type(layer).__name__}`", outer)
