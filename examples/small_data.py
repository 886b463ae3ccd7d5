"""Trains every method on small data and compares its NLL with that of SGD.

    python examples/small_data.py [--data digits cancer wine diabetes]
        [--methods ...] [--splits 5] [--smoke] [--out results/small_data]

The data are those of scikit-learn: 200 digits of five classes, and two thirds
of the breast cancer, wine and diabetes data. All methods have the same dense
network, their default settings and the learning rates of `compare.py`. The
network of diabetes also learns the noise. Prints the NLL of the other
examples: the mean over random splits with its standard error. A star marks a
method that is worse than SGD by more than two standard errors of the
difference, split by split. Writes the table and all numbers to a folder.
"""

import argparse
import json
import math
import os
from types import SimpleNamespace

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras
import numpy as np
import sklearn.datasets
from comparison.methods import METHODS
from comparison.training import Budget
from comparison.training import Training

import keras_bdl as bdl
from keras_bdl.extend import StoragePath

BUDGET = Budget(
    epochs=100, batch_size=32, members=5, samples=30, filters=(), units=50
)
SMOKE = Budget(
    epochs=8, batch_size=64, members=2, samples=3, filters=(), units=4
)
LOADERS = {
    "digits": sklearn.datasets.load_digits,
    "cancer": sklearn.datasets.load_breast_cancer,
    "wine": sklearn.datasets.load_wine,
    "diabetes": sklearn.datasets.load_diabetes,
}
# Methods that cannot do regression.
ONLY_CLASSES = ("temperature scaling",)
WIDTH = 13


class DenseTraining(Training):
    """Trains dense networks with two hidden layers."""

    def __init__(self, task, budget, seed):
        super().__init__(task, budget, seed)
        if not task.num_classes:
            self.loss = bdl.likelihoods.Gaussian()

    def network(self, *, dropout=0.0, activation="relu"):
        x = inputs = keras.Input(self.task.train[0].shape[1:])
        for _ in range(2):
            x = keras.layers.Dense(self.budget.units, activation)(x)
            if dropout:
                x = keras.layers.Dropout(dropout)(x)
        if self.task.num_classes:
            outputs = keras.layers.Dense(self.task.num_classes)(x)
        else:
            outputs = bdl.likelihoods.LearnedStddev()(keras.layers.Dense(1)(x))
        return bdl.Model(inputs, outputs)


def task(name, seed):
    """Returns one random split of a data set.

    Args:
        name: A key of `LOADERS`.
        seed: Seed of the split.
    """
    x, y = LOADERS[name](return_X_y=True)
    if name == "digits":
        x, y = x[y < 5], y[y < 5]
    order = np.random.default_rng(seed).permutation(len(y))
    size = 200 if name == "digits" else 2 * len(y) // 3
    train, rest = order[:size], order[size:]
    validation, test = rest[: len(rest) // 4], rest[len(rest) // 4 :]
    # Pixels share one scale: some are zero in all training images.
    axis = None if name == "digits" else 0
    x = (x - x[train].mean(axis)) / x[train].std(axis)
    if name == "diabetes":
        y = ((y - y[train].mean()) / y[train].std())[:, None]
        classes = None
    else:
        y, classes = y.astype("int32"), int(y.max()) + 1
    x = x.astype("float32")
    return SimpleNamespace(
        train=(x[train], y[train]),
        validation=(x[validation], y[validation]),
        test=(x[test], y[test]),
        num_classes=classes,
    )


def nll_of(methods, name, budget, seed):
    """Returns the NLL of each method on one split, as a dict.

    Args:
        methods: A part of `METHODS`.
        name: A key of `LOADERS`.
        budget: The `Budget`.
        seed: Seed of the split and of the trainings.
    """
    training = DenseTraining(task(name, seed), budget, seed)
    x, y = training.task.test
    found = {}
    for number, (method, train) in enumerate(methods.items(), 1):
        if method in ONLY_CLASSES and not training.task.num_classes:
            continue
        print(f"[{number}/{len(methods)}] {name}, {method}, split {seed}")
        report = bdl.evaluate(train(training)(x), y)
        if training.task.num_classes:
            found[method] = report.nll
        else:
            found[method] = -report.log_likelihood
    keras.utils.clear_session()
    return found


def table(found):
    """Returns a table with a column for each data set.

    Args:
        found: A dict from a data set to a list of results of `nll_of`.
    """
    names = list(found)
    lines = ["method".ljust(20) + "".join(n.rjust(WIDTH) for n in names)]
    for method in METHODS:
        cells = [_cell(method, runs) for runs in found.values()]
        if any(cells):
            row = "".join(cell.rjust(WIDTH) for cell in cells)
            lines.append(method.ljust(20) + row)
    return "\n".join(lines)


def _cell(method, runs):
    if method not in runs[0]:
        return ""
    values = np.array([run[method] for run in runs])
    plain = np.array([run["SGD"] for run in runs])
    mean, error = mean_and_error(values)
    loss, uncertain = mean_and_error(values - plain)
    star = "*" if loss > 2 * uncertain and len(runs) > 1 else " "
    return f"{mean:.3f}({error:.3f}){star}"


def mean_and_error(values):
    """Returns the mean of one value a split, and its standard error."""
    spread = np.std(values, ddof=1) if len(values) > 1 else 0.0
    return np.mean(values), spread / math.sqrt(len(values))


def arguments():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    add = parser.add_argument
    add("--data", nargs="+", choices=LOADERS, default=list(LOADERS))
    add("--methods", nargs="+", choices=METHODS, help="default: all")
    add("--splits", type=int, default=5, help="number of random splits")
    add("--smoke", action="store_true", help="seconds only")
    add("--out", type=StoragePath, default="results/small_data")
    return parser.parse_args()


def main():
    args = arguments()
    args.out.mkdir(parents=True, exist_ok=True)
    budget = SMOKE if args.smoke else BUDGET
    chosen = {"SGD", *(args.methods or METHODS)}
    methods = {name: METHODS[name] for name in METHODS if name in chosen}
    found = {}
    for name in args.data:
        for seed in range(args.splits):
            run = nll_of(methods, name, budget, seed)
            found.setdefault(name, []).append(run)
            text = table(found)
            # A run that is stopped keeps the splits that it finished.
            (args.out / "table.txt").write_text(text + "\n")
            (args.out / "nll.json").write_text(json.dumps(found, indent=1))
        print(f"\n{text}\n")
    print(f"Table and numbers: {args.out.absolute()}")


if __name__ == "__main__":
    main()
