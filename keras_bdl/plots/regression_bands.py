"""Predictive bands of a regression with one input."""

import numpy as np

from keras_bdl.data.checked_inputs import numbers
from keras_bdl.plots.canvas import COLORS
from keras_bdl.plots.canvas import DARK
from keras_bdl.plots.canvas import add_legend
from keras_bdl.plots.canvas import open_axes
from keras_bdl.prediction import RegressionPrediction


def regression_bands(
    x,
    prediction,
    x_train=None,
    y_train=None,
    truth=None,
    width: float = 2.0,
    ax=None,
):
    """Draws the predictive mean with its uncertainty, within and between.

    The inner band is `width` standard deviations of the mean over the draws
    (epistemic), the outer one those of a new observation (total). Without
    known noise the two are one.

    Args:
        x: Inputs of the prediction, one number each, in any order.
        prediction: A `RegressionPrediction` of one target.
        x_train: Inputs of the training data. Defaults to `None`.
        y_train: Targets of the training data. Defaults to `None`.
        truth: The true mean at each input, or a pair of it and the true
            standard deviation of an observation: drawn as dashed lines.
            Defaults to `None`, unknown.
        width: Half the width of the bands in standard deviations. Defaults
            to `2.0`, about 95 %.
        ax: Matplotlib axes. Defaults to `None`, those of a new figure.

    Returns:
        The axes.
    """
    if not isinstance(prediction, RegressionPrediction):
        raise ValueError(
            "`prediction` must be a `RegressionPrediction`, of one model "
            f"output. Received: {type(prediction).__name__}"
        )
    x = numbers("x", x).ravel()
    mean = numbers("prediction.mean", prediction.mean).ravel()
    if x.size != mean.size:
        raise ValueError(
            "`x` must hold one number for each predicted value; draw several "
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
    x, mean = x[order], mean[order]
    between = _stddev(prediction.variance_between, mean.shape)[order]
    total = _stddev(prediction.variance, mean.shape)[order]
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
    if x_train is not None:
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
        _draw_truth(ax, x, *(t[order] for t in truth), width)
    ax.set_xlabel("input")
    ax.set_ylabel("target")
    add_legend(ax)
    return ax


def _truth(truth, size):
    """Returns the mean, and the standard deviation if it is known."""
    parts = truth if isinstance(truth, tuple) else (truth,)
    parts = [numbers("truth", part).ravel() for part in parts]
    if len(parts) not in (1, 2) or any(part.size != size for part in parts):
        raise ValueError(
            "`truth` must hold the true mean at each input, or be a tuple of "
            f"it and the standard deviation, {size} numbers each. "
            f"Received: {[part.size for part in parts]} numbers"
        )
    return parts


def _draw_truth(ax, x, mean, stddev=None, width=2.0):
    style = {"color": DARK, "linewidth": 1.2}
    ax.plot(x, mean, linestyle=(0, (4, 2)), label="truth", **style)
    if stddev is None:
        return
    style["linestyle"] = (0, (1, 2))
    name = f"truth ±{width:g} sd of an observation"
    ax.plot(x, mean + width * stddev, label=name, **style)
    ax.plot(x, mean - width * stddev, **style)


def _stddev(variance, shape):
    variance = np.asarray(variance, dtype="float64").ravel()
    return np.sqrt(np.broadcast_to(variance, shape))
