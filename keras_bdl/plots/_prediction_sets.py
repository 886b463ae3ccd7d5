"""Sizes and coverage of prediction sets and intervals."""

from typing import Any

import numpy as np

from keras_bdl._aliases import ArrayLike
from keras_bdl.conformal._intervals import PredictionIntervals
from keras_bdl.conformal._risk_control import ControlledSets
from keras_bdl.conformal._risk_control import RiskReport
from keras_bdl.conformal._set_predictor import PredictionSets
from keras_bdl.plots._canvas import COLORS
from keras_bdl.plots._canvas import DARK
from keras_bdl.plots._canvas import add_method_legend
from keras_bdl.plots._canvas import open_axes


def prediction_sets(
    sets: PredictionSets | PredictionIntervals | ControlledSets,
    y: ArrayLike | None = None,
    *,
    ax: Any = None,
    color: str = COLORS[0],
    coverage_color: str = COLORS[1],
) -> Any:
    """Draws how large the sets are, and how often they contain their target.

    Use it to see whether large and small sets keep the same coverage. Bars show
    the share of the sets with each size, a number of classes or a range of
    widths. Points show the share of these sets that contain their target, with
    exact 95 % intervals. The dashed line is the coverage given to `fit`. Of
    sets from `RiskControl`, points show the mean loss and its standard error,
    and the line is the risk.

    Args:
        sets: Sets of classes or labels, or intervals, from a conformal method.
        y: Labels or targets. Defaults to `None`, those that the prediction
            found in its data.
        ax: Matplotlib axes. Defaults to `None`, the axes of a new figure.
        color: Colour of the bars. Defaults to blue.
        coverage_color: Colour of the points. Defaults to vermilion.

    Returns:
        The axes.

    Example:

    ```python
    sets = keras_bdl.conformal.LAC().fit(prediction, y)(prediction)
    keras_bdl.plots.prediction_sets(sets, y)
    ```
    """
    if not isinstance(sets, tuple(_LABELS)):
        raise ValueError(
            "`sets` must be the result of a conformal method, such as "
            "`keras_bdl.conformal.LAC().fit(prediction, y)(prediction)`. "
            f"Received: sets of type {type(sets).__name__}"
        )
    report = sets.evaluate(y)
    ax = open_axes(ax)
    names = list(report.by_size)
    groups = list(report.by_size.values())
    places = np.arange(len(names))
    counts = np.array([group["count"] for group in groups])
    ax.bar(
        places,
        100 * counts / counts.sum(),
        width=0.7,
        facecolor=(color, 0.35),
        edgecolor=color,
        linewidth=1.4,
        label="share of the sets",
    )
    label, values, reach, asked = _points(report, groups)
    ax.errorbar(
        places,
        100 * values,
        yerr=100 * reach,
        fmt="o",
        color=coverage_color,
        markersize=5,
        capsize=3,
        linewidth=1.4,
        label=label,
    )
    ax.axhline(
        100 * asked,
        color=DARK,
        linestyle="--",
        linewidth=1.2,
        label="asked for",
    )
    ax.grid(False, axis="x")
    ranges = any(" to " in name for name in names)
    ax.set_xticks(places, names, fontsize="small" if ranges else None)
    ax.set_ylim(0.0, max(103.0, 105.0 * np.max(values)))
    ax.set_xlabel(_LABELS[type(sets)])
    ax.set_ylabel("share (%)")
    add_method_legend(ax)
    return ax


def _points(report: Any, groups: list[dict]) -> tuple:
    """Returns label, values, error bars and the line, as shares."""
    if isinstance(report, RiskReport):
        losses = np.array([group["loss"] for group in groups])
        errors = np.array([group["standard_error"] for group in groups])
        return "mean loss, standard error", losses, errors, report.risk
    coverage = np.array([group["coverage"] for group in groups])
    ends = np.array([group["interval"] for group in groups])
    # A coverage of 0 or 1 equals one of the ends, up to rounding.
    reach = np.maximum(np.abs(ends.T - coverage), 0.0)
    known = np.isfinite(reach).all()  # not for several targets
    label = "coverage, 95 % interval" if known else "coverage"
    return label, coverage, reach, report.level


_LABELS = {
    PredictionSets: "classes in the set",
    PredictionIntervals: "width",
    ControlledSets: "labels in the set",
}
