"""Plots and scores of several methods on one page."""

from collections.abc import Callable
from typing import Any

import numpy as np

from keras_bdl._aliases import ArrayLike
from keras_bdl._reports import format_number
from keras_bdl.evaluation._evaluate import evaluate
from keras_bdl.plots._canvas import DARK
from keras_bdl.plots._canvas import GREY
from keras_bdl.plots._canvas import classifications
from keras_bdl.plots._canvas import method_styles
from keras_bdl.plots._canvas import pyplot
from keras_bdl.plots._classifiers import entropy_histograms
from keras_bdl.plots._classifiers import referral_curve
from keras_bdl.plots._classifiers import reliability_diagram

PANELS_A_ROW = 4


def _ood(measure: str, score: str) -> Callable:
    """Returns a function that reads an out-of-distribution score."""
    return lambda report: (
        report.ood["ood"][measure][score] if report.ood else np.nan
    )


# Heading, function from a report to a score, whether a higher score is better.
COLUMNS = (
    ("accuracy", lambda report: report.accuracy, True),
    ("NLL", lambda report: report.nll, False),
    ("Brier", lambda report: report.brier, False),
    ("ECE", lambda report: report.ece, False),
    ("AUROC\ncorrect", lambda report: report.auroc_correctness, True),
)
OOD_COLUMNS = (
    ("OOD AUROC\nentropy", _ood("entropy", "auroc"), True),
    ("OOD AUROC\nmut. inf.", _ood("mutual_information", "auroc"), True),
    ("OOD FPR95\nentropy", _ood("entropy", "fpr95"), False),
)


def comparison(
    predictions: dict,
    y: ArrayLike | None = None,
    *,
    ood: dict | None = None,
    title: str | None = None,
) -> Any:
    """Draws calibration, referral, OOD detection and scores of several methods.

    Use it to compare methods on the same test inputs.

    Args:
        predictions: Dict from the name of a method to its
            `ClassificationPrediction`, for the same inputs.
        y: Labels, integers or one-hot. Defaults to `None`, the labels in the
            data of each prediction.
        ood: Dict from the name of a method to its `ClassificationPrediction`
            for out-of-distribution inputs. Defaults to `None`.
        title: Title of the page. Defaults to `None`.

    Returns:
        The figure.

    Example:

    ```python
    p = keras_bdl.predict(model, x_test, posterior)
    q = keras_bdl.predict(model, 5 * x_test, posterior)
    figure = keras_bdl.plots.comparison(
        {"ensemble": p}, y_test, ood={"ensemble": q}
    )
    figure.savefig("comparison.png")
    ```
    """
    if not isinstance(predictions, dict):
        raise ValueError(
            "`predictions` must be a dict from the name of a method to its "
            f"prediction. Received: {type(predictions).__name__}"
        )
    classifications(predictions)
    ood = ood or {}
    unknown = set(ood) - set(predictions)
    if unknown:
        raise ValueError(
            "`ood` may only have names of `predictions`, "
            f"{sorted(predictions)}. Received: also {sorted(unknown)}"
        )
    # Evaluates first, so that errors come before any figure is made.
    reports = {
        name: evaluate(p, y, ood={"ood": ood[name]} if name in ood else None)
        for name, p in predictions.items()
    }
    plt = pyplot()
    with plt.rc_context({"font.size": 9, "axes.titlesize": 10}):
        figure, heads, panels, table = _page(plt, len(predictions), len(ood))
        figure.suptitle(title, weight="bold")
        reliability_diagram(predictions, y, ax=heads[0])
        heads[0].set_title("Calibration", loc="left", weight="bold")
        referral_curve(predictions, y, ax=heads[1])
        heads[1].set_title("Referral", loc="left", weight="bold")
        _one_legend(heads)
        _histograms(panels, predictions, ood)
        _table(table, reports, COLUMNS + (OOD_COLUMNS if ood else ()))
    return figure


def _page(plt: Any, num_methods: int, num_panels: int) -> tuple:
    """Returns the figure, and the axes of its head, its panels, its table."""
    rows = -(-num_panels // PANELS_A_ROW)
    heights = [3.4, 1.9 * rows, 0.75 + 0.27 * num_methods]
    if not rows:
        del heights[1]
    figure = plt.figure(figsize=(9.0, sum(heights) + 0.6), layout="constrained")
    top, *middle, bottom = figure.subfigures(
        len(heights), 1, height_ratios=heights
    )
    heads, panels = top.subplots(1, 2), []
    if rows:
        columns = -(-num_panels // rows)
        grid = middle[0].subplots(rows, columns, squeeze=False, sharey=True)
        panels = list(grid.ravel())
        for ax in panels[num_panels:]:
            ax.set_axis_off()
    return figure, heads, panels, bottom.subplots()


def _one_legend(heads: Any) -> None:
    """Replaces the legends of the panels by one legend above all panels."""
    # Only the labels of the second panel name the measures of referral.
    handles, names = heads[1].get_legend_handles_labels()
    for ax in heads:
        ax.get_legend().remove()
    heads[0].figure.legend(
        handles,
        names,
        loc="outside upper center",
        ncols=min(len(names), 4),
        frameon=False,
    )


def _histograms(panels: list, predictions: dict, ood: dict) -> None:
    """Draws the entropies of each method in the colour of the method."""
    styles = method_styles(predictions)
    shown = [name for name in predictions if name in ood]
    for ax, name in zip(panels, shown, strict=False):
        entropy_histograms(
            predictions[name],
            ood[name],
            ax=ax,
            color=styles[name]["color"],
            outside_color=GREY,
        )
        ax.set_title(name, loc="left", weight="bold")
        if not ax.get_subplotspec().is_first_col():
            ax.set_ylabel("")
        if ax is not panels[0]:
            ax.get_legend().remove()


def _table(ax: Any, reports: dict, columns: tuple) -> None:
    """Writes one line of scores for each method, the best scores in bold."""
    ax.set_axis_off()
    ax.set(xlim=(0, 2 + len(columns)), ylim=(len(reports) + 0.2, -1.6))
    for line in (-1.6, -0.5, len(reports) - 0.4):
        ax.axhline(line, color=DARK, linewidth=0.8, clip_on=False)
    for row, (name, style) in enumerate(method_styles(reports).items()):
        ax.plot(0.1, row, markersize=6, clip_on=False, **style)
        ax.text(0.25, row, name, va="center")
    for place, (heading, read, more) in enumerate(columns):
        right = {"x": 2.9 + place, "ha": "right", "va": "center"}
        scores = [read(report) for report in reports.values()]
        texts = [format_number(score) for score in scores]
        best = _best(scores, more)
        ax.text(y=-1.05, s=f"{heading} {'↑' if more else '↓'}", **right)
        for row, text in enumerate(texts):
            weight = "bold" if text == best else "normal"
            ax.text(y=row, s=text, weight=weight, **right)


def _best(scores: list[float], more: bool) -> str | None:
    """Returns the best score as text, or `None` if all scores are NaN."""
    known = [score for score in scores if not np.isnan(score)]
    if not known:
        return None
    return format_number(max(known) if more else min(known))
