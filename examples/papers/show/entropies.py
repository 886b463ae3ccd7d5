"""Entropies of the test set and of out-of-distribution sets."""

import matplotlib.pyplot as plt
import measures

import keras_bdl as bdl
from show import panels
from show.table import markdown
from show.table import mean_and_error

METRICS = ("ood_auroc", "fpr95", "entropy_auroc", "entropy_divergence")
# Number of bins, equal to that of the entropy divergence, as in the SWAG paper.
BINS = 50


def show(outcome, arguments):
    """Draws histograms of the first seed; returns a table of the scores.

    Args:
        outcome: The `Outcome`.
        arguments: The arguments of the recipe, `arguments.NoArguments`.
    """
    recipe, results = outcome.recipe, outcome.results
    figure, axes = plt.subplots(
        len(results),
        len(recipe.ood),
        figsize=(4.4 * len(recipe.ood), 2.6 * len(results)),
        layout="constrained",
        sharex=True,
        sharey="row",
        squeeze=False,
    )
    lines = [("data, network", "method", "against", *METRICS)]
    for row, (cell, of_seeds) in zip(axes, results.items(), strict=True):
        for ax, name in zip(row, recipe.ood, strict=True):
            first = of_seeds[0]
            bdl.plots.entropy_histograms(
                first.test, first.predictions[name], num_bins=BINS, ax=ax
            )
            ax.axvline(first.test.entropy.mean(), color=panels.COLORS[0])
            ax.axvline(
                first.predictions[name].entropy.mean(), color=panels.COLORS[1]
            )
            ax.set_title(f"{cell.method}, against {name}", fontsize="medium")
            scores = [
                mean_and_error(
                    [measures.of(f"{metric} {name}", r) for r in of_seeds]
                )
                for metric in METRICS
            ]
            lines.append((cell.where, cell.label, name, *scores))
            ax.label_outer()
    panels.one_legend(figure, axes)
    panels.heading(figure, recipe, " (lines: means)")
    file = outcome.save(figure, "entropies")
    return f"{markdown(lines)}\n\nHistograms: {file}"
