"""Losses of a layer that replicas do not share."""

import threading


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
