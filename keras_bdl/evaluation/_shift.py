"""Scores of predictions for shifted inputs."""

import re
from collections.abc import Callable
from collections.abc import Mapping
from typing import Any

from keras_bdl._arguments import check_number

# A name that ends with a number after a space or an underscore.
NAMED_SEVERITY = re.compile(r"(.*\S)[\s_]+([-+]?\d+(?:\.\d+)?)")


def shift_scores(
    shift: Any, check: Callable, scores: Callable
) -> dict[str, dict[str, list]]:
    """Returns lists of scores by corruption, one entry for each severity.

    `check` of a name and a prediction raises an error for a prediction of
    another task, `scores` of both returns a dict. Severities rise.
    """
    found = {}
    for corruption, predictions in _by_severity(shift, check).items():
        severities = sorted(predictions)
        rows = [
            scores(f"shift[{corruption!r}][{severity}]", predictions[severity])
            for severity in severities
        ]
        columns = {name: [row[name] for row in rows] for name in rows[0]}
        found[corruption] = {"severity": severities, **columns}
    return found


def _by_severity(shift: Any, check: Callable) -> dict[str, dict]:
    """Returns the predictions by the name of a corruption, then by severity."""
    if not isinstance(shift, Mapping):
        raise ValueError(
            "`shift` must be a dict from the name of a corruption to its "
            "predictions, a dict by severity, a list for the severities 1, 2, "
            f"... or one prediction. Received: {type(shift).__name__}"
        )
    found: dict[str, dict] = {}
    for name, value in shift.items():
        corruption, severity = str(name), 1
        named = NAMED_SEVERITY.fullmatch(corruption)
        if isinstance(value, Mapping):
            several = dict(value)
        elif isinstance(value, (list, tuple)):
            several = dict(enumerate(value, 1))
        else:
            if named:
                corruption, severity = named[1], _number(named[2])
            several = {severity: value}
        if not several:
            raise ValueError(
                f"`shift[{name!r}]` must hold at least one prediction. "
                f"Received: {value!r}"
            )
        by_severity = found.setdefault(corruption, {})
        for severity, prediction in several.items():
            key = f"severity of shift[{name!r}]"
            check_number(key, severity)
            if severity in by_severity:
                raise ValueError(
                    "`shift` must have one prediction for each corruption "
                    f"and severity. Received: two of {corruption!r} with "
                    f"severity {severity}"
                )
            check(f"shift[{name!r}]", prediction)
            by_severity[_number(severity)] = prediction
    return found


def shift_section(
    name: str, scores: dict[str, list], heads: dict[str, str]
) -> tuple[str, list]:
    """Returns the title and the rows of the table of one corruption."""
    rows: list = [["severity", *heads.values()]]
    columns = [scores[key] for key in heads]
    for severity, *numbers in zip(scores["severity"], *columns, strict=True):
        rows.append([f"{severity:g}", *numbers])
    return f"Shift: {name}", rows


def _number(value: Any) -> Any:
    """Returns an `int` if the value is a whole number, otherwise a `float`."""
    value = float(value)
    return int(value) if value.is_integer() else value
