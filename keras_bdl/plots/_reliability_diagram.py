"""Reliability diagram in the style of the SWAG paper."""

from typing import Any

import numpy as np

from keras_bdl._aliases import ArrayLike
from keras_bdl.evaluation import calibration_bins
from keras_bdl.evaluation._calibration import CalibrationBins
from keras_bdl.plots.canvas import DARK
from keras_bdl.plots.canvas import GREY
from keras_bdl.plots.canvas import add_method_legend
from keras_bdl.plots.canvas import classifications
from keras_bdl.plots.canvas import method_styles
from keras_bdl.plots.canvas import open_axes
from keras_bdl.prediction._predictions import labelled_entries

# The axis ends at HIGHEST. All bins of higher confidence become one point.
SMALLEST_DOUBT = 1e-4
HIGHEST = 1 - SMALLEST_DOUBT
# The important ticks come first. Later ones without room are left out.
TICKS = (0.9, 0.99, 0.999, HIGHEST, 0.5, 0, 0.97, 0.997, 0.7, 0.3, 0.8, 0.6)
# Room that a label and each of its characters need, as shares of the axis.
LABEL_GAP, CHARACTER_WIDTH = 0.03, 0.018


def reliability_diagram(
    predictions: Any,
    y: ArrayLike | None = None,
    *,
    num_bins: int = 20,
    ax: Any = None,
) -> Any:
    """Draws confidence minus accuracy against confidence.

    Use it to see whether a classifier is over- or under-confident. The inputs
    are sorted by confidence into bins of equal size. The axis of the
    confidence is linear in `-log(1 - confidence)`, which spreads out
    confidences near 1, where most inputs of a trained network lie. The axis
    ends at 0.9999. All bins with a higher mean confidence become one point at
    this end, their weighted mean. Points above the dashed line are
    over-confident, points below it are under-confident.

    Args:
        predictions: A `ClassificationPrediction`, or a dict of them by name.
        y: Labels, integers or one-hot. Defaults to `None`, the labels in the
            data of each prediction.
        num_bins: Number of bins. Defaults to `20`.
        ax: Matplotlib axes. Defaults to `None`, the axes of a new figure.

    Returns:
        The axes.

    Example:

    ```python
    keras_bdl.plots.reliability_diagram(prediction, y_test, num_bins=5)
    ```

    Reference:
        - [Maddox et al., 2019](https://arxiv.org/abs/1902.02476), figure 3
    """
    curves = {
        name: _bins(prediction, y, num_bins)
        for name, prediction in classifications(predictions).items()
    }
    ax = open_axes(ax)
    ax.axhline(0.0, color=DARK, linestyle="--", linewidth=1.2)
    for name, style in method_styles(curves).items():
        ax.plot(
            np.minimum(curves[name].confidence, HIGHEST),
            curves[name].gap,
            label=name,
            markersize=4.5,
            linewidth=1.6,
            **style,
        )
    _spread_near_one(ax)
    ax.set_xlabel("confidence (highest probability)")
    ax.set_ylabel("confidence − accuracy")
    _name_the_sides(ax)
    add_method_legend(ax)
    return ax


def _bins(prediction, y, num_bins):
    counted = labelled_entries(prediction, y)
    correct = counted.prediction.predicted_classes == counted.y
    return _pool_highest(
        calibration_bins(
            counted.prediction.confidence,
            correct,
            num_bins=num_bins,
            binning="mass",
        )
    )


def _pool_highest(bins):
    """Joins all bins beyond the end of the axis into one bin."""
    beyond = bins.confidence >= HIGHEST
    if not beyond.any():
        return bins
    count = bins.count[beyond]
    pooled = [count.sum()] + [
        np.average(values[beyond], weights=count)
        for values in (bins.confidence, bins.accuracy)
    ]
    return CalibrationBins(
        *(
            np.append(values[~beyond], value)
            for values, value in zip(bins, pooled, strict=True)
        )
    )


def _spread_near_one(ax):
    def forward(confidence):
        return -np.log10(np.maximum(1.0 - confidence, SMALLEST_DOUBT / 10))

    def inverse(position):
        return 1.0 - 10.0**-position

    ax.set_xscale("function", functions=(forward, inverse))
    low, high = forward(ax.dataLim.intervalx)
    low = min(low, max(0.0, high - 1.0))  # at least one decade if possible
    margin = 0.05 * (high - low) + 0.02
    low, high = low - margin, high + margin
    kept = []
    for tick in TICKS:
        place = (forward(tick) - low) / (high - low)
        half = (CHARACTER_WIDTH * len(_tick_label(tick)) + LABEL_GAP) / 2
        free = all(abs(place - p) > half + h for p, h, _ in kept)
        if 0 <= place <= 1 and free:
            kept.append((place, half, tick))
    ticks = [tick for *_, tick in kept]
    ax.set_xticks(ticks, [_tick_label(tick) for tick in ticks])
    ax.set_xticks([], minor=True)
    ax.set_xlim(inverse(low), inverse(high))


def _tick_label(tick):
    return f"≥ {tick:g}" if tick == HIGHEST else f"{tick:g}"


def _name_the_sides(ax):
    """Labels both sides of the dashed line and makes room for the labels."""
    low, high = ax.dataLim.intervaly
    room = max(0.02, 0.45 * max(high, -low))
    ax.set_ylim(min(1.1 * low, -room), max(1.1 * high, room))
    look = {"rotation": 270, "color": GREY, "fontsize": "small"}
    for place, text in ((1.0, "over-confident"), (0.0, "under-confident")):
        ax.annotate(
            text,
            (1.02, place),
            xycoords="axes fraction",
            va="top" if place else "bottom",
            annotation_clip=False,
            **look,
        )
