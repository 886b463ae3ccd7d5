"""Regression with one hidden layer, on random splits."""

import functools

import keras
import numpy as np
import published
from files import digested
from files import kept
from lookup import settings_of
from recipe import Cell
from regression_experiments import methods
from regression_experiments.data import DATA
from regression_experiments.data import Split
from regression_experiments.networks import TABLES
from regression_experiments.networks import Networks

import keras_bdl as bdl
from keras_bdl.extend import StoragePath
from show.table import markdown
from show.table import mean_and_error

METHODS = {
    "MFVI": "mean-field",
    "Radial BNN": "Radial",
    "MC dropout": "MC dropout",
}


class PaperNetworks(Networks):
    """Networks with the prior, learning rate and epochs of a paper.

    MC dropout keeps the settings of `Networks`, because the paper did not train
    it: its results for dropout are copied from another paper.

    Args:
        split: A `Split`.
        noise: `"constant"`, or `"input"` for noise that depends on the input.
        own: A `regression_experiments.networks.Settings`.
        known: The `Settings` of the paper for variational layers.
    """

    def __init__(self, split, noise, own, known):
        super().__init__(split, noise, own)
        self.known = known

    def prior(self, kind):
        """Returns the prior; that of the paper for variational layers."""
        if kind != "variational":
            return super().prior(kind)
        return bdl.priors.Normal(self.known.prior_stddev, self.size)

    def distribution(self, split, kind, member=0):
        """Returns a trained network with variational layers."""
        return self.fit(
            split,
            (kind, member),
            lambda: self.variational(kind),
            lambda: keras.optimizers.Adam(self.known.learning_rate),
            self.known.epochs,
        )


def show(outcome, arguments):
    """Returns a table of log-likelihoods and errors on random splits.

    Args:
        outcome: The `Outcome`.
        arguments: The arguments of the recipe, `arguments.Regression`.
    """
    session = outcome.session
    rows = published.published()[outcome.recipe.name]["rows"]
    make = _maker(outcome.recipe.paper, arguments.network, session.scale)
    lines = [("data", "method", "nll", "rmse")]
    for data in arguments.data:
        for name in METHODS:
            reports = []
            for seed in range(session.seeds):
                known = [seed, *session.precision]
                words = "regression", data, name, known
                path = session.folder / f"{digested(*words)}.json"
                learn = functools.partial(
                    _learned, data, name, seed, make, session.data_dir
                )
                reports.append(kept(path, learn))
            printed = {}
            for row in rows:
                if (row["data"], row["method"]) == (data, name):
                    printed = row
            columns = []
            for metric in ("nll", "rmse"):
                text = mean_and_error([report[metric] for report in reports])
                if metric in printed:
                    text += f" (paper {printed[metric]:.4g})"
                columns.append(text)
            lines.append((data, name, *columns))
    return markdown(lines)


def _learned(data, name, seed, make, data_dir):
    """Returns the report of a method on one split."""
    split = _split(data, seed, data_dir)
    print(f"  {data}, {name}, split {seed}", flush=True)
    # New networks for each method: used networks would continue their random
    # numbers, and a resumed run would get other numbers.
    return _report(name, make(split, "constant", TABLES), split)


def _maker(paper, network, scale):
    """Returns a function that makes the networks of a split."""
    if scale == "paper":
        known = settings_of(Cell(paper, "", network, "MFVI"), "MFVI", scale)
        return functools.partial(PaperNetworks, known=known)
    return functools.partial(Networks, smoke=scale == "smoke")


def _split(data, seed, data_dir):
    if data in DATA:
        return DATA[data](seed)
    if data_dir is None:
        raise SystemExit(
            f"Give in `--data-dir` the folder that has {data}.csv, with a "
            "column for each input and the target in the last one."
        )
    try:
        with (StoragePath(data_dir) / f"{data}.csv").open_to_read() as file:
            table = np.loadtxt(file, delimiter=",")
    except (OSError, ValueError) as error:
        raise SystemExit(f"{data_dir}/{data}.csv: {error}") from error
    order = np.random.default_rng(seed).permutation(len(table))
    train, test = np.split(table[order], [9 * len(table) // 10])
    return Split(
        seed, (train[:, :-1], train[:, -1]), (test[:, :-1], test[:, -1])
    )


def _report(name, nets, split):
    predict = methods.METHODS[METHODS[name]](nets, split)
    report = bdl.evaluate(predict(split.test[0]), split.test[1])
    return {"nll": -report.log_likelihood, "rmse": report.rmse}
