"""Checks of arguments that posteriors and their callbacks share."""

import math
import numbers


def as_scale(scale):
    """Returns the factor of a covariance as a `float`."""
    if not (
        isinstance(scale, numbers.Real) and math.isfinite(scale) and scale >= 0
    ):
        raise ValueError(
            "`scale` must be a finite number from 0 on; 0 draws the mean. "
            f"Received: scale={scale!r}"
        )
    return float(scale)


def as_positive(name, value):
    """Returns a positive, finite number as a `float`.

    Args:
        name: The argument.
        value: What came for it.
    """
    if not (
        isinstance(value, numbers.Real) and math.isfinite(value) and value > 0
    ):
        raise ValueError(
            f"`{name}` must be a positive, finite number. "
            f"Received: {name}={value!r}"
        )
    return float(value)


def as_list(name, value, of):
    """Returns a list or tuple as a list; an array is none.

    Args:
        name: The argument.
        value: What came for it.
        of: What the list holds, for the message.
    """
    if not isinstance(value, (list, tuple)):
        raise ValueError(
            f"`{name}` must be a list of {of}. Received: {name} of type "
            f"{type(value).__name__}"
        )
    return list(value)


def check_bool(name, value):
    """Returns the value, or raises the error of an argument."""
    if not isinstance(value, bool):
        raise ValueError(
            f"`{name}` must be `True` or `False`. Received: {name}={value!r}"
        )
    return value
