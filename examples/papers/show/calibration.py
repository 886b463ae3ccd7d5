"""Reliability diagrams: confidence against accuracy."""

import numpy as np

import keras_bdl as bdl
from keras_bdl.evaluation import calibration_bins
from keras_bdl.extend import method_styles
from show import panels
from show.table import of_metrics


def show(outcome, arguments):
    """Draws reliability diagrams of the first seed; returns a table.

    Args:
        outcome: The `Outcome`.
        arguments: The arguments of the recipe, `arguments.Calibration`.
    """
    results = outcome.results
    labels = panels.labels(results)
    styles = method_styles(dict.fromkeys(labels.values()))
    places = panels.of_places(results)
    # All panels share one scale of the gap, so that gaps can be compared.
    figure, axes = panels.figure(list(places), sharey=True)
    limits = []
    for (ax,), of_place in zip(axes, places.values(), strict=True):
        found = {
            labels[cell]: seeds[0].test for cell, seeds in of_place.items()
        }
        if arguments.curve:
            _curve(ax, found, arguments)
        else:
            bdl.plots.reliability_diagram(
                found, num_bins=arguments.num_bins, ax=ax
            )
        for line in ax.get_lines():  # one legend for all panels
            line.set(**styles.get(line.get_label(), {}))
        if not ax.get_subplotspec().is_first_col():
            ax.set_ylabel("")
        limits.append(ax.get_ylim())
    axes[0][0].set_ylim(np.min(limits), np.max(limits))
    panels.one_legend(figure, axes)
    panels.heading(figure, outcome.recipe)
    file = outcome.save(figure, "calibration")
    table = of_metrics(outcome, ("ece", "overconfidence", "nll"))
    return f"{table}\n\nReliability diagrams: {file}"


def _curve(ax, predictions, arguments):
    """Draws accuracy against confidence, and the diagonal."""
    ax.plot([0, 1], [0, 1], color="#222222", linestyle="--", linewidth=1.2)
    for name, prediction in predictions.items():
        bins = calibration_bins(
            prediction.confidence,
            prediction.predicted_classes == prediction.y,
            num_bins=arguments.num_bins,
            binning=arguments.curve,
        )
        ax.plot(bins.confidence, bins.accuracy, label=name, markersize=4)
    ax.set_xlabel("confidence (highest probability)")
    ax.set_ylabel("accuracy")
