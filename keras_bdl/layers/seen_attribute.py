"""Attributes of a layer that one call may see otherwise."""

import contextlib
import threading


class CallState(threading.local):
    """What a call of a layer leaves behind, in each thread.

    Replicas run in threads of their own.

    Attributes:
        seen: Values that `SeenAttribute`s have at present, by name.
        forward_pass: What was drawn last, or `None`.
    """

    def __init__(self):
        self.seen = {}
        self.forward_pass = None


class SeenAttribute:
    """An attribute that `seeing` replaces for the length of a block.

    The layer has a `CallState` as its `_call_state`.

    Args:
        default: A function of layer and name that returns what the attribute
            is outside of such blocks. Defaults to `None`, what was assigned.
    """

    def __init__(self, default=None):
        self._default = default or assigned

    def __set_name__(self, owner, name):
        self._name = name

    def __get__(self, layer, owner=None):
        if layer is None:
            return self
        seen = layer._call_state.seen
        if self._name in seen:
            return seen[self._name]
        return self._default(layer, self._name)

    def __set__(self, layer, value):
        vars(layer)[self._name] = value


def assigned(layer, name):
    """Returns what was assigned to an attribute."""
    if name not in vars(layer):
        raise AttributeError(
            f"`{type(layer).__name__}` must have the attribute {name!r} to be "
            "asked for it, and a weight needs a built layer: call it on an "
            f"input first. Received: built={layer.built}"
        )
    return vars(layer)[name]


@contextlib.contextmanager
def seeing(layer, values):
    """Makes the attributes of a layer what a dictionary says."""
    state = layer._call_state
    before = state.seen
    state.seen = {**before, **values}
    try:
        yield
    finally:
        state.seen = before
