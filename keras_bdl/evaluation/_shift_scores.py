"""Scores of predictions for shifted inputs."""

import re
from collections.abc import Callable
from collections.abc import Mapping
from typing import Any

import numpy as np

from keras_bdl._arguments import check_number
from keras_bdl._data._checked_inputs import check_classification
from keras_bdl.evaluation._example_scores import ExampleScores
from keras_bdl.prediction._predictions import CountedEntries
from keras_bdl.prediction._predictions import chosen_entries
from keras_bdl.prediction._predictions import counted_entries
from keras_bdl.prediction._predictions import labelled_entries

# A name that ends with a number after a space or an underscore.
NAMED_SEVERITY = re.compile(r"(.*\S)[\s_]+([-+]?\d+(?:\.\d+)?)")


def shift_scores(
    shift: Any, check: Callable, scores: Callable
) -> dict[str, dict[str, list]]:
    """Returns the scores of shifted inputs, by the name of the corruption.

    Args:
        shift: Argument of `keras_bdl.evaluate`.
        check: Function of a name and a prediction that raises an error for a
            prediction of another task.
        scores: Function of a name and a prediction that returns its scores.

    Returns:
        For each corruption, a dict of lists with one entry for each severity,
        in rising order.
    """
    return {
        corruption: _lists(
            {
                severity: scores(
                    f"shift[{corruption!r}][{severity}]", by_severity[severity]
                )
                for severity in sorted(by_severity)
            }
        )
        for corruption, by_severity in _by_severity(shift, check).items()
    }


def _by_severity(shift, check):
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


def classification_shift(
    shift: Any,
    counted: CountedEntries,
    *,
    num_bins: int,
) -> dict[str, dict[str, list]]:
    """Returns the scores of a classifier on shifted inputs.

    Args:
        shift: Argument of `keras_bdl.evaluate`.
        counted: Entries for the inputs that are not shifted, with their
            labels.
        num_bins: Number of bins of the calibration error.
    """
    return shift_scores(
        shift,
        check_classification,
        lambda name, shifted: _scores(name, shifted, counted, num_bins),
    )


def shift_section(
    name: str, scores: dict[str, list], heads: dict[str, str]
) -> tuple[str, list]:
    """Returns the title and the rows of the table of one corruption.

    Args:
        name: Name of the corruption.
        scores: Entry of the result of `shift_scores`.
        heads: Head of the column of each score.
    """
    rows: list = [["severity", *heads.values()]]
    columns = [scores[key] for key in heads]
    for severity, *numbers in zip(scores["severity"], *columns, strict=True):
        rows.append([f"{severity:g}", *numbers])
    return f"Shift: {name}", rows


def _scores(name, shifted, counted, num_bins):
    if shifted.num_classes != counted.prediction.num_classes:
        raise ValueError(
            f"`{name}` must be a prediction of the same model, with "
            f"{counted.prediction.num_classes} classes. "
            f"Received: {shifted.num_classes} classes"
        )
    inputs = shifted.log_mean.shape[:-1]
    if shifted.y is not None:
        own = labelled_entries(shifted, name=name)
    elif np.prod(inputs) == len(counted.kept):
        kept = counted.kept & counted_entries(shifted, name=name).kept
        own = chosen_entries(shifted, kept, counted.labels, name=name)
    else:
        raise ValueError(
            f"`{name}` must be a prediction for the inputs of `prediction`, "
            "shifted and in the same order, or hold labels of its own. "
            f"Received: {np.prod(inputs)} inputs for {len(counted.kept)} labels"
        )
    scores = ExampleScores.of(name, own.prediction, own.y)
    return {"num_inputs": len(own.y), **scores.means(num_bins)}


def _lists(by_severity):
    names = next(iter(by_severity.values()))
    return {
        "severity": list(by_severity),
        **{n: [s[n] for s in by_severity.values()] for n in names},
    }


def _number(value):
    """Returns an `int` if the value is a whole number, otherwise a `float`."""
    value = float(value)
    return int(value) if value.is_integer() else value
