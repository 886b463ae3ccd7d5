"""Learning curves: accuracy and NLL in every epoch."""

import numpy as np
from settings import OF_PREDICTIONS

from keras_bdl.extend import method_styles
from show import panels
from show.table import of_metrics


def show(outcome, arguments):
    """Draws accuracy and NLL of training and test; returns a table.

    Cells that differ in the prediction alone share a training, so they share
    one curve.

    Args:
        outcome: The `Outcome`.
        arguments: The arguments of the recipe, `arguments.NoArguments`.
    """
    of_trainings = {}
    for cell, of_seeds in outcome.results.items():
        kept = of_seeds[0].trained[0].folder
        of_trainings.setdefault(kept, (cell, of_seeds))
    results = dict(of_trainings.values())
    labels = panels.labels(results, without=OF_PREDICTIONS)
    styles = method_styles(dict.fromkeys(labels.values()))
    places = panels.of_places(results)
    figure, axes = panels.figure(list(places), rows=2, sharex=False)
    for panel, of_place in zip(axes, places.values(), strict=True):
        for cell, of_seeds in of_place.items():
            color = styles[labels[cell]]["color"]
            for ax, name in zip(panel, ("accuracy", "log_loss"), strict=True):
                _draw(ax, of_seeds, name, color, labels[cell])
        panel[0].set_ylabel("accuracy")
        panel[1].set_ylabel("negative log-likelihood")
        panel[1].set_yscale("log")
        panel[1].set_xlabel("epoch")
    panels.one_legend(figure, axes)
    panels.heading(figure, outcome.recipe, " (test; dotted: training)")
    file = outcome.save(figure, "curves")
    metrics = ("train_accuracy", "accuracy", "nll", "mean_val_accuracy")
    table = of_metrics(outcome, metrics, results)
    return f"{table}\n\nCurves: {file}"


def _draw(ax, of_seeds, name, color, label):
    """Draws the means over the seeds, of validation and of training."""
    trained = [result.history[name] for result in of_seeds]
    tested = [result.history[f"val_{name}"] for result in of_seeds]
    epochs = np.arange(1, len(trained[0]) + 1)
    every = max(len(epochs) // len(tested[0]), 1)
    ax.plot(
        epochs[every - 1 :: every], np.mean(tested, 0), color=color, label=label
    )
    ax.plot(epochs, np.mean(trained, 0), color=color, linestyle=":", lw=1)
