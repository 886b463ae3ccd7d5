"""Layer attributes that have other values inside a block."""

import contextlib
import threading


class CallState(threading.local):
    """The state of a layer during a call, separate for each thread.

    Each replica runs in its own thread.

    Attributes:
        seen: The current values of `SeenAttribute`s inside a block, by name.
        forward_pass: The last `ForwardPass`, or `None`.
    """

    def __init__(self):
        self.seen = {}
        self.forward_pass = None


class SeenAttribute:
    """A layer attribute that has another value in a block of `seeing`.

    The layer must have a `CallState` in the attribute `_call_state`.

    Args:
        default: A function of the layer and the name of the attribute. The
            function returns the value outside of such blocks. Defaults to
            `None`: the assigned value.
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
    """Returns the value that was assigned to an attribute."""
    if name not in vars(layer):
        raise AttributeError(
            f"`{type(layer).__name__}` has no attribute {name!r} yet, because "
            "a layer gets its weights when it is built. Call the layer on an "
            f"input first. Received: built={layer.built}"
        )
    return vars(layer)[name]


@contextlib.contextmanager
def seeing(layer, values):
    """Gives the attributes of a layer other values within the block.

    Args:
        layer: A layer with `SeenAttribute`s.
        values: The values, by name of the attribute.
    """
    state = layer._call_state
    before = state.seen
    state.seen = {**before, **values}
    try:
        yield
    finally:
        state.seen = before
