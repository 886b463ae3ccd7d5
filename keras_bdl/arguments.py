"""Checks of the numbers that users give."""

import math
import numbers


def check_number(
    name: str,
    value,
    *,
    above=None,
    at_least=None,
    below=math.inf,
    integer: bool = False,
):
    """Returns a finite number, or raises an error that names the argument.

    Args:
        name: The argument.
        value: What came for it.
        above: Number that it must exceed. Defaults to `None`.
        at_least: Smallest number. Defaults to `None`.
        below: Number that it must stay below. Defaults to `math.inf`.
        integer: Whether it must be an integer. Defaults to `False`.
    """
    kind = numbers.Integral if integer else numbers.Real
    if (
        isinstance(value, kind)
        and not isinstance(value, bool)
        and math.isfinite(value)
        and (above is None or value > above)
        and (at_least is None or value >= at_least)
        and value < below
    ):
        return value
    noun = "an integer" if integer else "a number"
    bounds = [f"above {above}"] if above is not None else []
    bounds += [f"from {at_least} on"] if at_least is not None else []
    bounds += [f"below {below}"] if below < math.inf else []
    raise ValueError(
        f"`{name}` must be {noun}{' ' * bool(bounds)}{' and '.join(bounds)}. "
        f"Received: {name}={value!r}"
    )


def check_learning_rate(learning_rate):
    """Raises an error for a number that no step can be taken with.

    Zero is allowed: a file may hold the last value of a schedule. Schedules
    and other functions are not called.

    Args:
        learning_rate: The argument of an optimizer.
    """
    if not callable(learning_rate):
        check_number("learning_rate", learning_rate, at_least=0.0)


def check_seed(seed):
    """Raises an error unless a seed selects a stream of random numbers.

    Args:
        seed: The argument.
    """
    check_number("seed", seed, at_least=0, below=2**63, integer=True)
