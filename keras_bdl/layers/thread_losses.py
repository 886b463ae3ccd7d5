"""Losses of a layer that replicas do not share, and the loss around them."""

import threading

from keras_bdl.likelihoods.loss_check import check_likelihood


class ThreadLosses:
    """Keeps what `add_loss` adds apart in each thread.

    Replicas run in threads of their own and take turns, also in the middle of
    a forward pass: in a synchronized BatchNormalization. Keras keeps one list
    for all, which each of them clears when it begins. To be mixed in before
    the layer.
    """

    def __init__(self, *args, **kwargs):
        self._of_thread = _OfThread()
        super().__init__(*args, **kwargs)

    # The names are those of Keras, whose constructor assigns an empty list and
    # an empty set.

    @property
    def _losses(self):
        return self._of_thread.losses

    @_losses.setter
    def _losses(self, value):
        del value

    @property
    def _loss_ids(self):
        return self._of_thread.ids

    @_loss_ids.setter
    def _loss_ids(self, value):
        del value


class _OfThread(threading.local):
    def __init__(self):
        self.losses = []
        self.ids = set()


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
