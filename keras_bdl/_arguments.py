"""Checks of arguments, one function for each kind of argument.

Each function raises a `ValueError` that names the argument, says which values
are allowed and shows the value received. `True` and `False` do not count as
numbers.
"""

import difflib
import inspect
import math
import numbers
from collections.abc import Iterable
from collections.abc import Sequence
from typing import Any


def check_number(
    name: str,
    value: Any,
    *,
    above: float | None = None,
    at_least: float | None = None,
    below: float = math.inf,
    at_most: float | None = None,
    integer: bool = False,
) -> Any:
    """Returns a finite number, or raises an error that names the argument.

    The bounds `above` and `below` are exclusive, the others inclusive.
    """
    kind: Any = numbers.Integral if integer else numbers.Real
    if (
        isinstance(value, kind)
        and not isinstance(value, bool)
        and math.isfinite(value)
        and (above is None or value > above)
        and (at_least is None or value >= at_least)
        and value < below
        and (at_most is None or value <= at_most)
    ):
        return value
    noun = "an integer" if integer else "a number"
    if integer and at_least == 1:
        noun, at_least = "a positive integer", None
    bounds = [f"above {above}"] if above is not None else []
    bounds += [f"of at least {at_least}"] if at_least is not None else []
    bounds += [f"below {below}"] if below < math.inf else []
    bounds += [f"at most {at_most}"] if at_most is not None else []
    advice = ""
    if (above == 0 or at_least == 0) and 1.0 in (below, at_most):
        advice = _share_of(value)
    raise ValueError(
        f"`{name}` must be {noun}{' ' * bool(bounds)}{' and '.join(bounds)}. "
        f"{advice}Received: {name}={value!r}"
    )


def _share_of(value: Any) -> str:
    """Returns advice for percent in place of a share."""
    if isinstance(value, numbers.Real) and 5 <= float(value) <= 100:
        return f"Write {float(value) / 100:g} for {float(value):g} percent. "
    return ""


def did_you_mean(value: Any, choices: Iterable) -> str:
    """Returns a sentence with the choice that a value resembles, or `""`."""
    names = [choice for choice in choices if isinstance(choice, str)]
    if not isinstance(value, str):
        return ""
    # Few people write the underscores and capitals of a name from memory.
    alike = {name.lower(): name for name in reversed(names)}
    close = difflib.get_close_matches(value.lower(), alike, n=1)
    return f'Did you mean "{alike[close[0]]}"? ' if close else ""


def check_count(name: str, value: Any, *, at_least: int = 1) -> int:
    """Returns a count, or raises an error that names the argument."""
    return check_number(name, value, at_least=at_least, integer=True)


def check_choice(name: str, value: Any, choices: Sequence) -> Any:
    """Returns one of several choices, or raises an error that lists them."""
    # Compares types first: `True == 1`, and an array compares entry by entry.
    if not any(
        isinstance(value, type(choice))
        and isinstance(value, bool) == isinstance(choice, bool)
        and value == choice
        for choice in choices
    ):
        raise ValueError(
            f"`{name}` must be one of {tuple(choices)}. "
            f"{did_you_mean(value, choices)}Received: {name}={value!r}"
        )
    return value


def check_bool(name: str, value: Any) -> bool:
    """Returns `True` or `False`, or raises an error for anything else."""
    if not isinstance(value, bool):
        raise ValueError(
            f"`{name}` must be `True` or `False`. Received: {name}={value!r}"
        )
    return value


def check_learning_rate(learning_rate: Any) -> None:
    """Raises an error unless an optimizer can use the learning rate.

    Zero is allowed, because a saved file may hold the last value of a
    schedule. Schedules and other functions are not called, so they pass.
    """
    if not callable(learning_rate):
        check_number("learning_rate", learning_rate, at_least=0.0)


def check_seed(seed: Any) -> int:
    """Returns a seed, an integer from 0 to 2^63 - 1, or raises an error."""
    return check_number("seed", seed, at_least=0, below=2**63, integer=True)


def as_list(name: str, value: Any, of: str) -> list:
    """Returns a list or tuple as a list, or raises an error for an array."""
    if not isinstance(value, (list, tuple)):
        raise ValueError(
            f"`{name}` must be a list of {of}. Received: {name} of type "
            f"{type(value).__name__}"
        )
    return list(value)


def check_verbose(verbose: Any) -> int:
    """Returns the `verbose` of `keras.utils.Progbar`: `"auto"` means `1`."""
    if verbose not in ("auto", 0, 1, 2):
        raise ValueError(
            '`verbose` must be `"auto"`, `0`, `1` or `2`. '
            f"Received: verbose={verbose!r}"
        )
    return 1 if verbose == "auto" else verbose


class ShowsArguments:
    """Gives a class a `repr` that shows its constructor arguments.

    The value of an argument is the attribute of the same name:
    `Normal(stddev=0.1, mean=0.0, dataset_size=None)`.
    """

    def __repr__(self) -> str:
        parameters = inspect.signature(type(self)).parameters
        shown = [
            f"{name}={getattr(self, name)!r}"
            for name in parameters
            if hasattr(self, name)
        ]
        return f"{type(self).__name__}({', '.join(shown)})"


def as_names(names: str | Iterable[str]) -> tuple[str, ...]:
    """Returns one name or several names as a tuple."""
    return (names,) if isinstance(names, str) else tuple(names)
