"""Separate layer losses for each thread, and a check of the compiled loss."""

import threading
from typing import Any

from keras_bdl import _keras
from keras_bdl.likelihoods._loss_as_likelihood import guard_likelihood


class ThreadLosses:
    """Gives each thread its own list of the losses of a layer.

    Keras keeps one list, and clears the list when a forward pass begins.
    Replicas run in threads and take turns in the middle of a forward pass, as
    in a synchronized `BatchNormalization`, so one replica would clear the
    losses of another. In the list of base classes, place this class before the
    Keras layer.
    """

    def __init__(self, *args: Any, **kwargs: Any):
        self._of_thread = _OfThread()
        super().__init__(*args, **kwargs)

    # Keras assigns, reads and clears attributes of these two names.

    @property
    def _losses(self):
        return self._of_thread.losses

    @_losses.setter
    def _losses(self, value):
        self._of_thread.losses = value

    @property
    def _loss_ids(self):
        return self._of_thread.ids

    @_loss_ids.setter
    def _loss_ids(self, value):
        self._of_thread.ids = value


class _OfThread(threading.local):
    """The losses of a layer, separate for each thread.

    Every thread starts with empty losses, like a new layer.
    """

    def __init__(self):
        self.losses = []
        self.ids = set()


def check_outer_loss(layer: Any) -> None:
    """Makes the compiled loss of the model that calls a layer a likelihood.

    A plain `keras.Model` does not do this for its layers.

    Args:
        layer: A variational layer, in a forward pass of training.
    """
    outer = _keras.entry_layer(layer)
    guard_likelihood(
        f"`{type(layer).__name__}`",
        outer,
        [layer.dataset_size],
        getattr(outer, "given_observations", None),
    )
