"""Regression with one hidden layer, on random splits."""

import functools

import keras
import numpy as np
import published
import regression
import settings
from files import digested
from files import kept
from recipe import Cell

import keras_bdl as bdl
from show.table import markdown
from show.table import mean_and_error

METHODS = {
    "MFVI": "mean-field",
    "Radial BNN": "Radial",
    "MC dropout": "MC dropout",
}


class PaperNetworks(regression.Networks):
    """Variational layers with the prior and the learning rate of the paper.

    Of dropout it has the numbers of another paper.
    """

    def __init__(self, split, noise, own):
        super().__init__(split, noise, own)
        cell = Cell("radial", "", "MLP 1 x 50", "MFVI")
        self.known = settings.of(cell, "MFVI", "paper")

    def prior(self, kind):
        """As there, but of variational layers N(0, 1)."""
        if kind != "variational":
            return super().prior(kind)
        return bdl.priors.Normal(self.known["prior_stddev"], self.size)

    def distribution(self, split, kind, member=0):
        """As there, at a constant learning rate, and longer."""
        return self.fit(
            split,
            (kind, member),
            lambda: self.variational(kind),
            lambda: keras.optimizers.Adam(self.known["learning_rate"]),
            self.known["epochs"],
        )


def show(recipe, session, seeds, folder):
    """Returns a table of log-likelihoods and errors.

    Args:
        recipe: The `Recipe`, with names of `data`: those of `regression.py`,
            and otherwise of files `<name>.csv` in `--data-dir`, with a column
            for each input and the target in the last one.
        session: The `Session`.
        seeds: Number of splits.
        folder: Where files are written, none of them here.
    """
    rows = published.published()[recipe.name]["rows"]
    lines = [("data", "method", "nll", "rmse")]
    for data in recipe.arguments["data"]:
        for name in METHODS:
            reports = []
            for seed in range(seeds):
                known = [seed, *session.precision]
                words = "regression", data, name, known
                path = session.folder / f"{digested(*words)}.json"
                learn = functools.partial(_learned, data, name, seed, session)
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


def _learned(data, name, seed, session):
    """The report of a method on one split."""
    split = _split(data, seed, session.data_dir)
    print(f"  {data}, {name}, split {seed}", flush=True)
    # Networks of its own: those that are used again go on with their random
    # numbers, and a killed run would have others.
    return _report(name, _networks(split, session.scale), split)


def _networks(split, scale):
    if scale == "paper":
        return PaperNetworks(split, "constant", regression.TABLES)
    smoke = scale == "smoke"
    return regression.Networks(split, "constant", regression.TABLES, smoke)


def _split(data, seed, data_dir):
    if data in regression.DATA:
        return regression.DATA[data](seed)
    if data_dir is None:
        raise SystemExit(
            f"Give in `--data-dir` the folder that has {data}.csv, with a "
            "column for each input and the target in the last one."
        )
    try:
        table = np.loadtxt(f"{data_dir}/{data}.csv", delimiter=",")
    except (OSError, ValueError) as error:
        raise SystemExit(f"{data_dir}/{data}.csv: {error}") from error
    order = np.random.default_rng(seed).permutation(len(table))
    train, test = np.split(table[order], [9 * len(table) // 10])
    return regression.Split(
        seed, (train[:, :-1], train[:, -1]), (test[:, :-1], test[:, -1])
    )


def _report(name, nets, split):
    predict = regression.METHODS[METHODS[name]](nets, split)
    report = bdl.evaluate(predict(split.test[0]), split.test[1])
    return {"nll": -report.log_likelihood, "rmse": report.rmse}
