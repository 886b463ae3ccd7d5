"""The noise of the gradient, and the optimal learning rate for SGD."""

import json

import keras
import numpy as np
import published
from files import damage_is_said
from files import read
from files import write

import keras_bdl as bdl
from keras_bdl.extend import method_styles
from show import panels
from show.table import markdown
from show.table import mean_and_error


def show(outcome, arguments):
    """Draws the noise and the optimal rate; returns a table of the last epoch.

    The cells of the recipe must set `keep_iterates`.

    Args:
        outcome: The `Outcome`.
        arguments: The arguments of the recipe, `arguments.NoArguments`.
    """
    heads = (
        "tr(C)",
        "optimal learning rate",
        "as the paper computes it",
        "initial learning rate",
    )
    lines = [("data, network", "method", *heads)]
    figure, axes = panels.figure(["noise of the gradient", "optimal rate"])
    results = outcome.results
    for cell, style in method_styles(results).items():
        found = [_along(result.trained[0]) for result in results[cell]]
        known = results[cell][0].trained[0].settings
        every = known.keep_iterates
        traces = [[noise.trace for noise in one] for one in found]
        rates = [[noise.learning_rate for noise in one] for one in found]
        for (ax,), values in zip(axes, (traces, rates), strict=True):
            epochs = every * np.arange(1, len(values[0]) + 1)
            ax.plot(
                known.start_epoch + epochs,
                np.mean(values, 0),
                label=f"{cell.where}, {cell.method}",
                **style,
            )
            ax.set_yscale("log")
            ax.set_xlabel("epoch")
        printed = [[_as_printed(noise) for noise in one] for one in found]
        columns = [
            mean_and_error([v[-1] for v in one])
            for one in (traces, rates, printed)
        ]
        used = f"{known.learning_rate:g}"
        lines.append((cell.where, cell.method, *columns, used))
    axes[0][0].set_ylabel("tr(C)")
    axes[1][0].set_ylabel("learning rate")
    panels.one_legend(figure, axes)
    panels.heading(figure, outcome.recipe)
    file = outcome.save(figure, "gradient_noise")
    said = ", ".join(
        f"{row['optimal_learning_rate']:g} ({row['method']})"
        for row in published.published()[outcome.recipe.name]["rows"]
    )
    table = f"{markdown(lines)}\n\nThe paper has {said}."
    return f"{table}\n\nFigure: {file}"


def _as_printed(noise):
    """Returns the learning rate by equation 6 of the paper's appendix.

    The equation mistakes the variance of the mean gradient of a batch for the
    variance of the sum, which is B^2 times as large. The equation also
    multiplies by the momentum instead of by one minus the momentum.
    """
    rate = noise.learning_rate / (1 - noise.momentum)
    return rate * noise.batch_size**2 * (noise.momentum or 1.0)


def _along(trained):
    """Returns the noise at all saved iterates.

    A file keeps each measurement, so a later run does not repeat it.
    """
    iterates, known = trained.posterior("iterates"), trained.settings
    path = trained.folder / "gradient_noise.json"
    found = []
    if path.exists():
        with damage_is_said(path):
            found = [
                bdl.extend.GradientNoiseReport(**one) for one in read(path)
            ]
    if len(found) == len(iterates):
        return found
    loss = trained.loss()  # one object, so that all iterates share one trace
    bar = keras.utils.Progbar(len(iterates), unit_name="iterate")
    for place in range(len(found), len(iterates)):
        trained.model.set_weights(iterates.sample(place))
        noise = bdl.diagnostics.gradient_noise(
            trained.model,
            trained.data.statistics,
            loss=loss,
            momentum=known.momentum,
            batch_size=trained.statistics_batch_size,
            verbose=0,
        )
        found.append(noise)
        write(path, json.dumps([one.to_dict() for one in found]))
        bar.update(place + 1)
    return found
