"""Checks of arguments that priors share."""

import math
import numbers


def check_finite(name, value):
    """Returns a finite number as a `float`, or raises an error."""
    if not (isinstance(value, numbers.Real) and math.isfinite(value)):
        raise ValueError(
            f"`{name}` must be a finite number. Received: {name}={value!r}"
        )
    return float(value)


def check_positive(name, value):
    """Returns a positive finite number as a `float`, or raises an error."""
    if not check_finite(name, value) > 0:
        raise ValueError(f"`{name}` must be positive. Received: {name}={value}")
    return float(value)
