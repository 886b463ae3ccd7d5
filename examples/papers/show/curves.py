"""How networks learn, epoch by epoch."""

import numpy as np
from trained import Trained

from keras_bdl.plots import canvas
from show import panels
from show.table import of_metrics


def show(recipe, results, folder):
    """Draws accuracy and log-loss of training and test; returns a table.

    Cells that differ in the prediction alone have one curve: what `fit` said.

    Args:
        recipe: The `Recipe`.
        results: One `Result` a seed, by cell.
        folder: Where the figure is written.
    """
    of_trainings = {}
    for cell, of_seeds in results.items():
        kept = of_seeds[0].trained[0].folder
        of_trainings.setdefault(kept, (cell, of_seeds))
    results = dict(of_trainings.values())
    labels = panels.labels(results, without=Trained.AFTER)
    styles = canvas.method_styles(dict.fromkeys(labels.values()))
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
    panels.heading(figure, recipe, " (test; dotted: training)")
    path = folder / "curves.png"
    figure.savefig(path, dpi=150)
    metrics = ("train_accuracy", "accuracy", "nll", "mean_val_accuracy")
    table = of_metrics(recipe, results, metrics)
    return f"{table}\n\nCurves: {path.name}"


def _draw(ax, of_seeds, name, color, label):
    """Means over the seeds of what was tested and of what was trained."""
    trained = [result.history[name] for result in of_seeds]
    tested = [result.history[f"val_{name}"] for result in of_seeds]
    epochs = np.arange(1, len(trained[0]) + 1)
    every = max(len(epochs) // len(tested[0]), 1)
    ax.plot(
        epochs[every - 1 :: every], np.mean(tested, 0), color=color, label=label
    )
    ax.plot(epochs, np.mean(trained, 0), color=color, linestyle=":", lw=1)
