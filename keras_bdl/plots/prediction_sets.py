"""Sizes and coverage of prediction sets and intervals."""

from typing import Any

import numpy as np

from keras_bdl.aliases import ArrayLike
from keras_bdl.conformal import PredictionIntervals
from keras_bdl.conformal import PredictionSets
from keras_bdl.plots.canvas import COLORS
from keras_bdl.plots.canvas import DARK
from keras_bdl.plots.canvas import add_method_legend
from keras_bdl.plots.canvas import open_axes


def prediction_sets(
    sets: PredictionSets | PredictionIntervals,
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
    exact 95 % intervals. The dashed line is the coverage given to `fit`.

    Args:
        sets: Sets of classes or intervals, from a conformal method.
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
    if not isinstance(sets, (PredictionSets, PredictionIntervals)):
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
    coverage = 100 * np.array([group["coverage"] for group in groups])
    ends = 100 * np.array([group["interval"] for group in groups])
    # A coverage of 0 or 1 equals one of the ends, up to rounding.
    reach = np.maximum(np.abs(ends.T - coverage), 0.0)
    known = np.isfinite(reach).all()  # not for several targets
    ax.errorbar(
        places,
        coverage,
        yerr=reach,
        fmt="o",
        color=coverage_color,
        markersize=5,
        capsize=3,
        linewidth=1.4,
        label="coverage, 95 % interval" if known else "coverage",
    )
    ax.axhline(
        100 * report.level,
        color=DARK,
        linestyle="--",
        linewidth=1.2,
        label="asked for",
    )
    ax.grid(False, axis="x")
    of_classes = isinstance(sets, PredictionSets)
    ax.set_xticks(places, names, fontsize=None if of_classes else "small")
    ax.set_ylim(0.0, 103.0)
    ax.set_xlabel("classes in the set" if of_classes else "width")
    ax.set_ylabel("share (%)")
    add_method_legend(ax)
    return ax
