"""The terms of the loss and the gradient noise along a training."""

import numpy as np
from files import read

from keras_bdl.extend import method_styles
from show import panels
from show.table import markdown
from show.table import mean_and_error

LOGS = {
    "accuracy": "training accuracy",
    "nll": "negative log-likelihood",
    "kl": "KL / N",
}
# If this part of the KL is logged, it replaces the KL, as in the paper.
PART_OF_KL = {"prior_cross_entropy": "prior cross-entropy / N"}


def show(outcome, arguments):
    """Draws accuracy, the terms of the loss and the noise of the gradient.

    Returns a table of their last values.

    Args:
        outcome: The `Outcome`.
        arguments: The arguments of the recipe, `arguments.NoArguments`.
    """
    results, logs = outcome.results, dict(LOGS)
    if all(
        r.history.keys() >= PART_OF_KL.keys() for r in sum(results.values(), [])
    ):
        logs.pop("kl")
        logs |= PART_OF_KL
    labels = *logs.values(), "stddev of the gradient"
    lines = [("method", *labels)]
    figure, [axes] = panels.figure([""], rows=4, height=2.2)
    for cell, style in method_styles(results).items():
        color = style["color"]
        for ax, name in zip(axes, logs, strict=False):
            values = [result.history[name] for result in results[cell]]
            epochs = np.arange(1, len(values[0]) + 1)
            ax.plot(epochs, np.mean(values, 0), color=color, label=cell.method)
        epochs, variances = _variances(results[cell])
        noise = np.sqrt(np.mean(variances, 0))
        axes[3].plot(epochs, noise, color=color, marker=".", label=cell.method)
        ends = [[r.last(name) for r in results[cell]] for name in logs]
        ends.append(np.sqrt(variances[:, -1]))
        lines.append((cell.method, *map(mean_and_error, ends)))
    for ax, label in zip(axes, labels, strict=True):
        ax.set_ylabel(label)
    axes[1].set_yscale("log")
    axes[3].set_yscale("log")
    axes[3].set_xlabel("epoch")
    panels.one_legend(figure, [axes])
    panels.heading(figure, outcome.recipe)
    file = outcome.save(figure, "dynamics")
    return f"At the end\n\n{markdown(lines)}\n\nFigure: {file}"


def _variances(of_seeds):
    """Returns epochs, and variances of the gradient, one row per seed."""
    folders = [result.trained[0].folder for result in of_seeds]
    found = [read(f / "gradient_variance.json", f) for f in folders]
    epochs = list(found[0])
    values = [[one[e]["variance"] for e in epochs] for one in found]
    return list(map(int, epochs)), np.array(values)
