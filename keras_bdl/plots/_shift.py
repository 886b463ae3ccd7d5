"""Plot of a score against the severity of a shift."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from keras_bdl._arguments import check_choice
from keras_bdl.evaluation._classification_report import ClassificationReport
from keras_bdl.evaluation._regression_report import RegressionReport
from keras_bdl.plots._canvas import add_method_legend
from keras_bdl.plots._canvas import method_styles
from keras_bdl.plots._canvas import open_axes

# Scores of each kind of report; the first is the default.
SCORES: dict[type, dict[str, str]] = {
    ClassificationReport: {
        "nll": "negative log-likelihood",
        "accuracy": "accuracy",
        "brier": "Brier score",
        "ece": "ECE",
    },
    RegressionReport: {
        "crps": "CRPS",
        "rmse": "RMSE",
        "log_likelihood": "log-likelihood",
    },
}


def shift(
    reports: Any,
    *,
    score: str | None = None,
    corruption: str | None = None,
    ax: Any = None,
) -> Any:
    """Draws a score against the severity of a shift.

    Use it to see whether a model stays honest as its inputs change. The
    severity 0 is the score of the inputs that are not shifted. One report has
    one line for each corruption. Several reports have one thick line each, the
    mean over the corruptions, and a thin line for each corruption.

    Args:
        reports: A report with `shift`, from `keras_bdl.evaluate`, or a dict of
            them by name.
        score: `"accuracy"`, `"nll"`, `"brier"` or `"ece"` of a classifier,
            `"rmse"`, `"log_likelihood"` or `"crps"` of a regression. Defaults
            to `None`: `"nll"` or `"crps"`.
        corruption: Name of the only corruption to draw. Defaults to `None`,
            all. The mean over several corruptions needs the same severities
            for all of them.
        ax: Matplotlib axes. Defaults to `None`, the axes of a new figure.

    Returns:
        The axes.

    Example:

    ```python
    shifted = [keras_bdl.predict(model, f * x_test) for f in (0.5, 0.2, 0.1)]
    report = keras_bdl.evaluate(prediction, y_test, shift={"scale": shifted})
    keras_bdl.plots.shift(report, score="accuracy")
    ```
    """
    several = isinstance(reports, Mapping)
    named = dict(reports) if several else {None: reports}
    known = SCORES.get(
        type(next(iter(named.values()), None)), SCORES[ClassificationReport]
    )
    score = score or next(iter(known))
    check_choice("score", score, tuple(known))
    lines = {
        name: _lines(name, report, score, corruption)
        for name, report in named.items()
    }
    if not lines:
        raise ValueError(
            "`reports` must be a report or a dict with at least one report. "
            "Received: {}"
        )
    means = (
        {name: _mean(of_report) for name, of_report in lines.items()}
        if (several and corruption is None)
        else {}
    )
    ax = open_axes(ax)
    if not several:
        for name, style in method_styles(lines[None]).items():
            _draw(ax, lines[None][name], name, style)
    for name, style in method_styles(lines).items() if several else ():
        of_report = lines[name]
        if corruption is not None:
            _draw(ax, of_report[corruption], name, style)
            continue
        _draw(ax, means[name], name, style)
        if len(of_report) > 1:
            for x, y in of_report.values():
                ax.plot(x, y, color=style["color"], linewidth=0.8, alpha=0.4)
    title = "severity" if corruption is None else f"severity of {corruption}"
    if several and corruption is None:
        count = len(next(iter(lines.values())))
        if count > 1:
            title += f" (thick: mean of {count} corruptions)"
    ax.set_xlabel(title)
    ax.set_ylabel(known[score])
    _set_ticks(ax, lines)
    add_method_legend(ax)
    return ax


def _draw(ax: Any, line: tuple, name: Any, style: dict) -> None:
    ax.plot(*line, label=name, linewidth=1.8, markersize=4.5, **style)


def _lines(
    name: Any, report: Any, score: str, corruption: str | None
) -> dict[str, tuple]:
    """Returns severities and scores of a report, by corruption."""
    which = "" if name is None else f"[{name!r}]"
    if not getattr(report, "shift", None) or score not in report.to_dict():
        raise ValueError(
            f"`reports{which}` must be a report of one kind with shifted "
            "predictions. Call `keras_bdl.evaluate(..., shift=...)`. "
            f"Received: {type(report).__name__} without shift"
        )
    if corruption is not None:
        check_choice("corruption", corruption, tuple(report.shift))
    return {
        kind: _with_zero(scores, score, report[score])
        for kind, scores in report.shift.items()
        if corruption in (None, kind)
    }


def _with_zero(
    scores: dict[str, list], score: str, unshifted: float
) -> tuple[np.ndarray, np.ndarray]:
    severity, values = list(scores["severity"]), list(scores[score])
    if 0 not in severity:
        severity, values = [0, *severity], [unshifted, *values]
    order = np.argsort(severity)
    return np.array(severity)[order], np.array(values)[order]


def _mean(lines: dict[str, tuple]) -> tuple:
    """Returns severities and mean scores over the corruptions."""
    severities = {tuple(severity) for severity, _ in lines.values()}
    if len(severities) > 1:
        raise ValueError(
            "`corruption` must name one corruption if their severities "
            f"differ: {', '.join(lines)}. Received: corruption=None"
        )
    (severity,) = severities
    return severity, np.mean([values for _, values in lines.values()], axis=0)


def _set_ticks(ax: Any, lines: dict[Any, dict]) -> None:
    found = {
        float(severity)
        for of_report in lines.values()
        for severities, _ in of_report.values()
        for severity in severities
    }
    if len(found) <= 8:
        ax.set_xticks(sorted(found), [f"{s:g}" for s in sorted(found)])
