"""How far confidence is from accuracy."""

import numpy as np

import keras_bdl as bdl
from keras_bdl.evaluation import calibration_bins
from keras_bdl.plots import canvas
from show import panels
from show.table import of_metrics


def show(recipe, results, folder):
    """Draws reliability diagrams of the first seed; returns a table.

    Args:
        recipe: The `Recipe`; `num_bins` is 20 unless it says otherwise. With
            a `curve`, accuracy is drawn against confidence, in bins of equal
            `"width"` or `"mass"`; without, what lies between the two, as
            SWAG's paper does.
        results: One `Result` a seed, by cell.
        folder: Where the figure is written.
    """
    labels = panels.labels(results)
    styles = canvas.method_styles(dict.fromkeys(labels.values()))
    places = panels.of_places(results)
    num_bins = recipe.arguments.get("num_bins", 20)
    # One scale of the gap: who is worse is to look worse.
    figure, axes = panels.figure(list(places), sharey=True)
    limits = []
    for (ax,), of_place in zip(axes, places.values(), strict=True):
        found = {
            labels[cell]: seeds[0].test for cell, seeds in of_place.items()
        }
        if "curve" in recipe.arguments:
            _curve(ax, found, num_bins, recipe.arguments["curve"])
        else:
            bdl.plots.reliability_diagram(found, num_bins=num_bins, ax=ax)
        for line in ax.get_lines():  # one legend for all panels
            line.set(**styles.get(line.get_label(), {}))
        if not ax.get_subplotspec().is_first_col():
            ax.set_ylabel("")
        limits.append(ax.get_ylim())
    axes[0][0].set_ylim(np.min(limits), np.max(limits))
    panels.one_legend(figure, axes)
    panels.heading(figure, recipe)
    path = folder / "calibration.png"
    figure.savefig(path, dpi=150)
    table = of_metrics(recipe, results, ("ece", "overconfidence", "nll"))
    return f"{table}\n\nReliability diagrams: {path.name}"


def _curve(ax, predictions, num_bins, binning):
    """Draws accuracy against confidence, and where the two are equal."""
    ax.plot([0, 1], [0, 1], color=canvas.DARK, linestyle="--", linewidth=1.2)
    for name, prediction in predictions.items():
        bins = calibration_bins(
            prediction.confidence,
            prediction.predicted_classes == prediction.y,
            num_bins=num_bins,
            binning=binning,
        )
        ax.plot(bins.confidence, bins.accuracy, label=name, markersize=4)
    ax.set_xlabel("confidence (highest probability)")
    ax.set_ylabel("accuracy")
