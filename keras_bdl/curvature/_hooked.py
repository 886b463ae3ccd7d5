"""Layers whose calls and activations run through a capture."""

import contextlib
import functools
import inspect
from collections.abc import Iterable
from collections.abc import Iterator
from typing import Any

import keras

from keras_bdl._replaced_in_thread import replaced


@contextlib.contextmanager
def hooked(
    layers: Iterable[keras.layers.Layer], capture: Any
) -> Iterator[None]:
    """Replaces `call` and `activation` of layers by methods of a capture.

    Inside of the block, this thread calls `run_layer` and `run_activation`.
    Other threads, such as other replicas, call the layers as before.

    Args:
        layers: Built layers.
        capture: A `Capture`, or an object with the same two methods.
    """
    with contextlib.ExitStack() as stack:
        for layer in layers:
            watched_call = functools.partial(_watched_call, capture, layer)
            stack.enter_context(replaced(layer, "call", watched_call))
            if getattr(layer, "activation", None) is not None:
                watched = functools.partial(_watched_activation, capture, layer)
                stack.enter_context(replaced(layer, "activation", watched))
        yield


def _watched_call(capture, layer, call, *args, **kwargs):
    if not args:
        name = next(iter(inspect.signature(call).parameters))
        args = (kwargs.pop(name),)
    return capture.run_layer(layer, call, *args, **kwargs)


def _watched_activation(capture, layer, activation, z):
    return activation(capture.run_activation(layer, z))
