"""Axes, colours and legends that all plots share."""

import itertools
from collections.abc import Iterable
from typing import Any

from keras_bdl.prediction import ClassificationPrediction

# The colours of Okabe and Ito, which colour-blind readers can distinguish. Two
# darker ones replace yellow and black.
COLORS = (
    "#0072B2",
    "#D55E00",
    "#009E73",
    "#CC79A7",
    "#56B4E9",
    "#E69F00",
    "#5B2A86",
    "#7A4B1E",
)
MARKERS = "osD^vPX"
# Room for the axis label above the legend, in font sizes of the legend.
LABEL_DEPTH = 4.2
MOST_COLUMNS = 5
# Largest width of a legend, relative to the axes. Legends of neighbouring axes
# then do not touch.
LEGEND_WIDTH = 1.15
GREY = "#777777"
DARK = "#222222"


def pyplot() -> Any:
    """Returns `matplotlib.pyplot`, or raises an error with a `pip` command."""
    try:
        import matplotlib.pyplot
    except ImportError as error:
        raise ImportError(
            "`keras_bdl.plots` needs matplotlib, which is not installed. Run "
            '`pip install "keras-bdl[examples]"`.'
        ) from error
    return matplotlib.pyplot


def open_axes(ax: Any = None) -> Any:
    """Returns the given axes or axes of a new figure, in a plain style.

    Use it for pictures of your own in the style of `keras_bdl.plots`.

    Args:
        ax: Matplotlib axes. Defaults to `None`, the axes of a new figure.

    Example:

    ```python
    axes = keras_bdl.extend.open_axes()
    axes.plot(prediction.entropy)
    ```
    """
    if ax is None:
        _, ax = pyplot().subplots(figsize=(5.6, 4.0), layout="constrained")
    elif not isinstance(ax, pyplot().Axes):
        raise ValueError(
            "`ax` must be Matplotlib axes, as from "
            "`figure, ax = plt.subplots()`, or `None` for a new figure. "
            f"Received: ax={ax!r}"
        )
    ax.spines[["top", "right"]].set_visible(False)
    ax.grid(True, color="#E6E6E6", linewidth=0.8)
    ax.set_axisbelow(True)
    return ax


def classifications(predictions: Any) -> dict:
    """Returns predictions by name. A single prediction has the name `None`."""
    if not isinstance(predictions, dict):
        predictions = {None: predictions}
    if not predictions:
        raise ValueError(
            "`predictions` must be a prediction or a dict with at least one "
            "prediction. Received: {}"
        )
    for name, prediction in predictions.items():
        if not isinstance(prediction, ClassificationPrediction):
            raise ValueError(
                f"The prediction{'' if name is None else f' {name!r}'} must "
                "be a `ClassificationPrediction` of one model output. "
                f"Received: {type(prediction).__name__}"
            )
    return predictions


def method_styles(names: Iterable) -> dict:
    """Returns the colour and marker of each method, by its position.

    The same names in the same order get the same styles in every picture. After
    eight methods, the colours repeat with other markers.

    Args:
        names: Names of the methods.

    Returns:
        A dict from a name to a dict with `color` and `marker`, arguments of
        `plot` in Matplotlib.

    Example:

    ```python
    styles = keras_bdl.extend.method_styles(["SWAG", "VOGN"])
    axes = keras_bdl.extend.open_axes()
    for name, style in styles.items():
        axes.plot([0, 1], label=name, **style)
    ```
    """
    looks = zip(itertools.cycle(COLORS), itertools.cycle(MARKERS), strict=False)
    return {
        name: {"color": color, "marker": marker}
        for name, (color, marker) in zip(names, looks, strict=False)
    }


def add_legend(ax: Any) -> None:
    """Adds a legend if the axes have a labelled line."""
    handles, _ = ax.get_legend_handles_labels()
    if handles:
        ax.legend(frameon=False)


def add_method_legend(ax: Any) -> None:
    """Adds a legend of methods below the axes, about as wide as the axes.

    A layout engine makes room for the legend. Without one, the axes shrink.
    """
    _, names = ax.get_legend_handles_labels()
    if not names:
        return
    bottom = ax.get_tightbbox().y0
    for columns in range(min(len(names), MOST_COLUMNS), 0, -1):
        legend = ax.legend(
            loc="upper center",
            bbox_to_anchor=(0.5, 0.0),
            borderaxespad=LABEL_DEPTH,
            ncols=columns,
            fontsize="small",
            frameon=False,
        )
        extent = legend.get_window_extent()
        if extent.width <= LEGEND_WIDTH * ax.bbox.width:
            break
    if not _has_layout(ax.figure) and extent.y0 < bottom:
        _raise_bottom(ax, (bottom - extent.y0) / ax.figure.bbox.height)


def add_figure_legend(
    figure: Any, handles: Iterable, names: Iterable, most_columns: int
) -> int:
    """Adds a legend below all panels, no wider than they are.

    Returns the number of its rows.
    """
    handles, names = list(handles), list(names)
    for columns in range(min(len(names), most_columns), 0, -1):
        legend = figure.legend(
            handles,
            names,
            loc="outside lower center",
            ncols=columns,
            frameon=False,
        )
        if legend.get_window_extent().width <= figure.bbox.width:
            break
        if columns > 1:
            legend.remove()
    return -(-len(names) // columns)


def _has_layout(figure: Any) -> bool:
    from matplotlib.layout_engine import PlaceHolderLayoutEngine

    engine = figure.get_layout_engine()
    return not (engine is None or isinstance(engine, PlaceHolderLayoutEngine))


def _raise_bottom(ax: Any, height: float) -> None:
    box = ax.get_position()
    height = min(height, 0.6 * box.height)
    ax.set_position((box.x0, box.y0 + height, box.width, box.height - height))
    ax.set_in_layout(True)  # `set_position` switches it off
