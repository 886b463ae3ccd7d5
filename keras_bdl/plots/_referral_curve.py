"""Plot of a score against the share of inputs referred to an expert."""

from typing import Any

import numpy as np

from keras_bdl._aliases import ArrayLike
from keras_bdl._arguments import check_choice
from keras_bdl._arguments import check_number
from keras_bdl.evaluation import referral_accuracy
from keras_bdl.evaluation import referral_auroc
from keras_bdl.evaluation import uncertainty_of
from keras_bdl.plots.canvas import add_method_legend
from keras_bdl.plots.canvas import classifications
from keras_bdl.plots.canvas import method_styles
from keras_bdl.plots.canvas import open_axes
from keras_bdl.prediction._predictions import labelled_entries

SCORES = {"accuracy": "accuracy", "auroc": "AUROC"}


def referral_curve(
    predictions: Any,
    y: ArrayLike | None = None,
    *,
    score: str = "accuracy",
    uncertainty: str = "mutual_information",
    highest: float = 0.5,
    ax: Any = None,
) -> Any:
    """Draws the score of the remaining inputs against the referred share.

    Use the curve to see whether the model is wrong on uncertain inputs. The
    most uncertain inputs are referred first, for example to a doctor, and the
    model answers the rest.

    Args:
        predictions: A `ClassificationPrediction`, or a dict of them by name.
        y: Labels, integers or one-hot. Defaults to `None`, the labels in the
            data of each prediction.
        score: `"accuracy"`, or `"auroc"` for two classes. Defaults to
            `"accuracy"`.
        uncertainty: Measure by which inputs are referred, as in
            `keras_bdl.evaluate`. A prediction of a single sample has no mutual
            information, so the function uses its entropy instead. The legend
            says so if other predictions have mutual information. Defaults to
            `"mutual_information"`.
        highest: Largest share referred, below 1. Defaults to `0.5`.
        ax: Matplotlib axes. Defaults to `None`, the axes of a new figure.

    Returns:
        The axes.

    Example:

    ```python
    keras_bdl.plots.referral_curve(prediction, y_test)
    ```
    """
    check_choice("score", score, tuple(SCORES))
    check_number("highest", highest, above=0, below=1)
    fractions = np.linspace(0.0, highest, 51)
    curves, used = {}, {}
    for name, prediction in classifications(predictions).items():
        counted = labelled_entries(prediction, y)
        used[name], values = uncertainty_of(counted.prediction, uncertainty)
        curves[name] = _curve(counted, score, values, fractions)
    labels, xlabel = _named_measures(used, uncertainty)
    ax = open_axes(ax)
    for name, style in method_styles(curves).items():
        ax.plot(
            100 * fractions,
            curves[name],
            label=labels[name],
            markevery=10,
            markersize=4.5,
            linewidth=1.6,
            **style,
        )
    ax.set_xlim(0.0, 100 * highest)
    ax.set_xlabel(xlabel)
    ax.set_ylabel(f"{SCORES[score]} of the rest")
    add_method_legend(ax)
    return ax


def _named_measures(used, wanted):
    """Returns labels of the lines and of the axis that name the measures."""
    text = {name: measure.replace("_", " ") for name, measure in used.items()}
    if len(set(used.values())) == 1:
        (shared,) = set(text.values())
        return {name: name for name in used}, f"referred by {shared} (%)"
    labels = {
        name: name if measure == wanted else f"{name} (by {text[name]})"
        for name, measure in used.items()
    }
    wanted = wanted.replace("_", " ")
    return labels, f"referred by {wanted} unless noted (%)"


def _curve(counted, score, uncertainty, fractions):
    prediction, y = counted.prediction, counted.y
    if score == "accuracy":
        correct = prediction.predicted_classes == y
        return referral_accuracy(uncertainty, correct, fractions=fractions)
    if prediction.num_classes != 2:
        raise ValueError(
            '`score` must be "accuracy" for more than two classes. '
            f"Received: {score=} and {prediction.num_classes} classes"
        )
    positive = prediction.mean[:, 1]
    return referral_auroc(uncertainty, positive, y, fractions=fractions)
