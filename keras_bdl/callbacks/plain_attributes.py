"""The memory of callbacks that have no `get_state`."""

import numpy as np

_PLAIN = (bool, int, float, str, type(None), np.ndarray, np.generic)


def plain_attributes(callback):
    """Returns the attributes that are numbers, texts or (lists of) arrays."""
    return {
        name: list(value) if isinstance(value, tuple) else value
        for name, value in vars(callback).items()
        if isinstance(value, _PLAIN)
        or (
            isinstance(value, (list, tuple))
            and all(isinstance(item, _PLAIN) for item in value)
        )
    }
