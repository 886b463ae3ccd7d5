"""The memory of callbacks that have no `get_state`."""

import inspect

import numpy as np

_PLAIN = (bool, int, float, str, type(None), np.ndarray, np.generic)


def plain_attributes(callback):
    """Returns the attributes that are numbers, texts or (lists of) arrays.

    Those named like arguments of the constructor are settings and no memory:
    the new process has its own.
    """
    settings = {
        name
        for cls in type(callback).__mro__
        if "__init__" in vars(cls)
        for name in inspect.signature(cls.__init__).parameters
    }
    return {
        name: list(value) if isinstance(value, tuple) else value
        for name, value in vars(callback).items()
        if name not in settings and _is_plain(value)
    }


def _is_plain(value):
    if isinstance(value, (list, tuple)):
        return all(isinstance(item, _PLAIN) for item in value)
    return isinstance(value, _PLAIN)
