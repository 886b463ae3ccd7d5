"""Plots of predictive bands for regressions with one input."""

from typing import Any

import numpy as np

from keras_bdl._aliases import ArrayLike
from keras_bdl._arguments import check_count
from keras_bdl._arguments import check_number
from keras_bdl._data._checked_inputs import numbers
from keras_bdl.plots._canvas import COLORS
from keras_bdl.plots._canvas import DARK
from keras_bdl.plots._canvas import add_figure_legend
from keras_bdl.plots._canvas import add_legend
from keras_bdl.plots._canvas import open_axes
from keras_bdl.plots._canvas import pyplot
from keras_bdl.prediction import RegressionPrediction


def regression_bands(
    x: ArrayLike,
    prediction: RegressionPrediction,
    *,
    x_train: ArrayLike | None = None,
    y_train: ArrayLike | None = None,
    truth: ArrayLike | tuple[ArrayLike, ArrayLike] | None = None,
    width: float = 2.0,
    ax: Any = None,
) -> Any:
    """Draws the predictive mean with epistemic and total uncertainty.

    Use it for regressions with one input. The inner band shows the standard
    deviation of the mean over the posterior samples (epistemic). The outer band
    shows the standard deviation of a new observation (total). If the noise is
    unknown, only the inner band is drawn.

    Args:
        x: Inputs of the prediction, one number each, in any order.
        prediction: A `RegressionPrediction` of one target.
        x_train: Inputs of the training data. Defaults to `None`.
        y_train: Targets of the training data. Defaults to `None`.
        truth: The true mean at each input, or a tuple of the true mean and the
            true standard deviation of an observation. The mean is drawn as a
            dashed line, the standard deviation as dotted lines. Defaults to
            `None`, unknown.
        width: Half the width of the bands in standard deviations. Defaults to
            `2.0`, about 95 %.
        ax: Matplotlib axes. Defaults to `None`, the axes of a new figure.

    Returns:
        The axes.

    Example:

    ```python
    within, between = np.full((2, 64, 1), 0.1)
    bands = keras_bdl.prediction.RegressionPrediction(
        x[:, :1], variance_within=within, variance_between=between
    )
    keras_bdl.plots.regression_bands(x[:, 0], bands)
    ```
    """
    if not isinstance(prediction, RegressionPrediction):
        raise ValueError(
            "`prediction` must be a `RegressionPrediction` of one model "
            f"output. Received: {type(prediction).__name__}"
        )
    check_number("width", width, above=0)
    x = numbers("x", x).ravel()
    mean = numbers("prediction.mean", prediction.mean).ravel()
    if x.size != mean.size:
        raise ValueError(
            "`x` must hold one number for each predicted value. Plot several "
            f"inputs or targets one by one. Received: {x.size} numbers and "
            f"{mean.size} predicted values"
        )
    if (x_train is None) != (y_train is None):
        raise ValueError(
            "`x_train` and `y_train` must be given together. Received: "
            f"{'x_train' if y_train is None else 'y_train'} alone"
        )
    truth = None if truth is None else _truth(truth, x.size)
    order = np.argsort(x)
    if prediction.mask is not None:
        order = order[prediction.mask.ravel()[order]]
    between = _stddev(prediction.variance_between, mean.shape)[order]
    total = _stddev(prediction.known_variance, mean.shape)[order]
    x, mean = x[order], mean[order]
    ax = open_axes(ax)
    bands = [(between, f"±{width:g} sd of the mean (epistemic)", 0.45)]
    if np.any(total > between):
        bands.insert(0, (total, f"±{width:g} sd of an observation", 0.18))
    for stddev, name, alpha in bands:
        ax.fill_between(
            x,
            mean - width * stddev,
            mean + width * stddev,
            color=COLORS[0],
            alpha=alpha,
            linewidth=0,
            label=name,
        )
    ax.plot(x, mean, color=COLORS[0], linewidth=2.0, label="mean")
    if x_train is not None and y_train is not None:
        ax.plot(
            np.ravel(x_train),
            np.ravel(y_train),
            "o",
            color=DARK,
            markersize=3.0,
            alpha=0.6,
            markeredgewidth=0,
            label="training data",
        )
    if truth is not None:
        _draw_truth(ax, x, *(t[order] for t in truth), width=width)
    ax.set_xlabel("input")
    ax.set_ylabel("target")
    add_legend(ax)
    return ax


def _truth(truth: Any, size: int) -> Any:
    """Returns the true mean and, if known, the true standard deviation."""
    given = truth if isinstance(truth, tuple) else (truth,)
    parts = [numbers("truth", part).ravel() for part in given]
    if len(parts) not in (1, 2) or any(part.size != size for part in parts):
        raise ValueError(
            "`truth` must hold the true mean at each input, or be a tuple of "
            f"mean and standard deviation, {size} numbers each. "
            f"Received: {[part.size for part in parts]} numbers"
        )
    return parts


def _draw_truth(
    ax: Any,
    x: np.ndarray,
    mean: np.ndarray,
    stddev: np.ndarray | None = None,
    *,
    width: float,
) -> None:
    style = {"color": DARK, "linewidth": 1.2}
    ax.plot(x, mean, linestyle=(0, (4, 2)), label="truth", **style)
    if stddev is None:
        return
    style["linestyle"] = (0, (1, 2))
    name = f"truth ±{width:g} sd of an observation"
    ax.plot(x, mean + width * stddev, label=name, **style)
    ax.plot(x, mean - width * stddev, **style)


def _stddev(variance: ArrayLike, shape: tuple) -> np.ndarray:
    variance = np.asarray(variance, dtype="float64").ravel()
    return np.sqrt(np.broadcast_to(variance, shape))


# Room above and below data and truth, relative to their height.
MARGIN = 0.35
# Most columns of the legend below all panels.
MOST_COLUMNS = 3


def regression_comparison(
    x: ArrayLike,
    predictions: dict[str, RegressionPrediction],
    *,
    x_train: ArrayLike | None = None,
    y_train: ArrayLike | None = None,
    truth: ArrayLike | tuple[ArrayLike, ArrayLike] | None = None,
    width: float = 2.0,
    columns: int = 4,
    title: str | None = None,
) -> Any:
    """Draws `regression_bands` of several methods side by side.

    All panels have the same axes. If `y_train` or `truth` is given, the y axis
    covers their range, and wider bands are cut off. One method with wide bands
    then does not flatten the other panels.

    Args:
        x: Inputs of the predictions, one number each, in any order.
        predictions: Dict from the name of a method to its
            `RegressionPrediction` of one target.
        x_train: Inputs of the training data. Defaults to `None`.
        y_train: Targets of the training data. Defaults to `None`.
        truth: The true mean at each input, or a tuple of the true mean and the
            true standard deviation of an observation. Defaults to `None`.
        width: Half the width of the bands in standard deviations. Defaults to
            `2.0`.
        columns: Largest number of panels in a row. Defaults to `4`.
        title: Title of the page. Defaults to `None`.

    Returns:
        The figure.

    Example:

    ```python
    grid = np.linspace(-1, 1, 20).astype("float32")
    line = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
    line.compile(loss="mse")
    p = keras_bdl.predict(line, grid[:, None])
    figure = keras_bdl.plots.regression_comparison(grid, {"line": p})
    figure.savefig("bands.png")
    ```
    """
    if not isinstance(predictions, dict) or not predictions:
        raise ValueError(
            "`predictions` must be a dict from the name of a method to its "
            f"prediction. Received: {type(predictions).__name__}"
            f"{' without any' if predictions == {} else ''}"
        )
    check_count("columns", columns)
    shown = {
        "x_train": x_train,
        "y_train": y_train,
        "truth": truth,
        "width": width,
    }
    plt = pyplot()
    columns = min(columns, len(predictions))
    rows = -(-len(predictions) // columns)
    with plt.rc_context({"font.size": 9, "axes.titlesize": 10}):
        figure, grid = plt.subplots(
            rows,
            columns,
            figsize=(2.7 * columns, 2.1 * rows + 0.9),
            sharex=True,
            sharey=True,
            squeeze=False,
            layout="constrained",
        )
        try:
            _draw_panels(grid, x, predictions, shown)
            limits = _limits(y_train, truth, width)
        except ValueError:
            plt.close(figure)
            raise
        if limits is not None:
            grid[0, 0].set_ylim(*limits)
        _one_legend(figure, grid.ravel()[: len(predictions)])
        figure.suptitle(title, weight="bold")
    return figure


def _draw_panels(
    grid: Any,
    x: ArrayLike,
    predictions: dict[str, RegressionPrediction],
    shown: dict[str, Any],
) -> None:
    panels = grid.ravel()
    for ax, (name, prediction) in zip(
        panels, predictions.items(), strict=False
    ):
        regression_bands(x, prediction, ax=ax, **shown)
        ax.set_title(name, loc="left", weight="bold")
        ax.label_outer()
    for ax in panels[len(predictions) :]:
        # The panel above is now the last of its column.
        above = panels[list(panels).index(ax) - grid.shape[1]]
        above.tick_params(labelbottom=True)
        above.set_xlabel("input")
        ax.set_axis_off()


def _limits(
    y_train: ArrayLike | None, truth: Any, width: float
) -> tuple[float, float] | None:
    """Returns the range of data and truth with a margin, or `None`."""
    shown = [] if y_train is None else [numbers("y_train", y_train).ravel()]
    if truth is not None:
        mean, *stddev = truth if isinstance(truth, tuple) else (truth,)
        reach = width * np.asarray(stddev[0]) if stddev else 0.0
        shown += [np.ravel(mean - reach), np.ravel(mean + reach)]
    if not shown:
        return None
    low, high = np.min(np.concatenate(shown)), np.max(np.concatenate(shown))
    margin = MARGIN * (high - low)
    return low - margin, high + margin


def _one_legend(figure: Any, panels: Any) -> None:
    """Replaces the legends of the panels by one legend below all panels."""
    handles: dict[str, Any] = {}
    for ax in panels:
        for handle, name in zip(*ax.get_legend_handles_labels(), strict=True):
            handles.setdefault(name, handle)
        ax.get_legend().remove()
    rows = add_figure_legend(figure, handles.values(), handles, MOST_COLUMNS)
    # The figure has room for two rows of the legend.
    height = figure.get_figheight() + 0.2 * max(rows - 2, 0)
    figure.set_figheight(height)
