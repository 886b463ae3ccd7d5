"""Referral curve: what is left for the model when it may ask an expert."""

import numpy as np

from keras_bdl.data.checked_inputs import class_labels
from keras_bdl.data.checked_inputs import labels_of
from keras_bdl.evaluation import referral_accuracy
from keras_bdl.evaluation import referral_auroc
from keras_bdl.evaluation import uncertainty_of
from keras_bdl.plots.canvas import add_method_legend
from keras_bdl.plots.canvas import classifications
from keras_bdl.plots.canvas import method_styles
from keras_bdl.plots.canvas import open_axes

SCORES = {"accuracy": "accuracy", "auroc": "AUROC"}


def referral_curve(
    predictions,
    y=None,
    score: str = "accuracy",
    uncertainty: str = "mutual_information",
    highest: float = 0.5,
    ax=None,
):
    """Draws a score of the inputs that stay against the share referred.

    Args:
        predictions: A `ClassificationPrediction`, or a dict of them by name.
        y: Labels, integers or one-hot. Defaults to `None`, the labels that
            each prediction found in its data.
        score: `"accuracy"`, or `"auroc"` for two classes. Defaults to
            `"accuracy"`.
        uncertainty: What is referred first, as in `keras_bdl.evaluate`. A
            prediction of a single draw, which has no mutual information, is
            referred by its entropy, and says so in the legend if others are
            not. Defaults to `"mutual_information"`.
        highest: Largest share referred, below 1. Defaults to `0.5`.
        ax: Matplotlib axes. Defaults to `None`, those of a new figure.

    Returns:
        The axes.
    """
    if score not in SCORES:
        raise ValueError(
            f"`score` must be one of {tuple(SCORES)}. Received: score={score!r}"
        )
    fractions = np.linspace(0.0, highest, 51)
    curves, used = {}, {}
    for name, prediction in classifications(predictions).items():
        used[name], values = uncertainty_of(prediction, uncertainty)
        curves[name] = _curve(prediction, y, score, values, fractions)
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
    """Says who is referred by what: once, or at the names of the others."""
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


def _curve(prediction, y, score, uncertainty, fractions):
    y = class_labels(labels_of(prediction, y), prediction.log_mean.shape)
    if score == "accuracy":
        correct = prediction.labels.ravel() == y
        return referral_accuracy(uncertainty, correct, fractions)
    if prediction.num_classes != 2:
        raise ValueError(
            '`score` must be `"accuracy"` for more than two classes. '
            f"Received: {score=} and {prediction.num_classes} classes"
        )
    positive = prediction.mean.reshape(-1, 2)[:, 1]
    return referral_auroc(uncertainty, positive, y, fractions)
