"""Accuracy and NLL of a chain, by its number of samples and epochs."""

import keras
import numpy as np
from files import kept
from trainings import SAMPLES

from keras_bdl.extend import method_styles
from show import panels
from show.table import markdown
from show.table import mean_and_error


def show(outcome, arguments):
    """Draws accuracy and NLL of averages over the first samples of chains.

    Returns a table, and the epoch from which on a chain is as accurate as the
    method `target`.

    Args:
        outcome: The `Outcome`.
        arguments: The arguments of the recipe, `arguments.BySamples`.
    """
    lines = [("chain", "epochs", "samples", "accuracy", "nll")]
    chains = _chains(outcome.results)
    target = _target(outcome.results, arguments.target)
    figure, axes = panels.figure(["accuracy", "negative log-likelihood"])
    said = []
    for name, style in method_styles(chains).items():
        of_seeds = chains[name]
        found = np.array([_along(result) for result in of_seeds])
        known = of_seeds[0].trained[0].settings
        counts = np.arange(1, found.shape[1] + 1)
        epochs = known.burn_in_epochs + known.cycle_epochs * counts
        for epoch, count, values in zip(
            epochs, counts, found.swapaxes(0, 1), strict=True
        ):
            columns = [mean_and_error(list(v)) for v in values.T]
            lines.append((name, f"{epoch}", f"{count}", *columns))
        for (ax,), values in zip(axes, found.mean(0).T, strict=True):
            ax.plot(epochs, values, label=name, **style)
            ax.set_xlabel("epoch")
        accuracies = found.mean(0)[:, 0]
        said.append(
            f"{name} has the accuracy of {arguments.target}, {target:.4g}, "
            f"{_when(epochs, accuracies, target)}."
        )
    axes[0][0].axhline(target, color="gray", ls="--", label=arguments.target)
    axes[0][0].set_ylabel("accuracy")
    axes[1][0].set_ylabel("negative log-likelihood")
    panels.one_legend(figure, axes)
    panels.heading(figure, outcome.recipe)
    file = outcome.save(figure, "by_samples")
    return "\n\n".join([markdown(lines), "\n".join(said), f"Figure: {file}"])


def _chains(results):
    """Returns the results of one cell for each chain, by the chain's name."""
    found = {}
    for cell, of_seeds in results.items():
        one = of_seeds[0].trained[0]
        if (one.folder / f"{SAMPLES}.bdl").exists():
            found.setdefault(f"{one.training}, {cell.where}", of_seeds)
    return found


def _target(results, method):
    """Returns the mean accuracy of a method."""
    accuracies = [
        result.report.accuracy
        for cell, of_seeds in results.items()
        for result in of_seeds
        if cell.method == method
    ]
    if not accuracies:
        raise SystemExit(
            "`target` must be the method of a cell of the recipe. "
            f"Received: target={method!r}"
        )
    return float(np.mean(accuracies))


def _when(epochs, accuracies, target):
    """Returns in words when an accuracy is reached."""
    reached = np.flatnonzero(accuracies >= target)
    if not reached.size:
        return f"at no number of samples up to {len(epochs)}"
    first = int(reached[0])
    return f"after {epochs[first]} epochs: with {first + 1} samples"


def _along(result):
    """Returns accuracy and NLL of the first sample, of two, and so on."""
    (one,) = result.trained
    what = result.cell.test or "test"
    return kept(
        one.folder / f"by_samples_{what}.json",
        lambda: _measured(one, one.data.sets[what]),
    )


def _measured(trained, x):
    """Returns accuracy and NLL of running averages over the samples."""
    samples = trained.posterior(SAMPLES)
    bar = keras.utils.Progbar(len(samples), unit_name="sample")
    found, log_sum, last = [], -np.inf, trained.model.get_weights()
    for place in range(len(samples)):
        trained.model.set_weights(samples.sample(place))
        prediction = trained.predict(x, None)
        y = x[1] if isinstance(x, tuple) else prediction.y
        log_sum = np.logaddexp(log_sum, prediction.log_mean)
        hits = log_sum.argmax(-1) == y
        of_labels = np.take_along_axis(log_sum, np.asarray(y)[:, None], -1)
        nll = np.log(place + 1) - of_labels.mean()
        found.append([float(hits.mean()), float(nll)])
        bar.update(place + 1)
    trained.model.set_weights(last)  # other tables use the model, too
    return found
