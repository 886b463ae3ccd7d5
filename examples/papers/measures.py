"""The numbers of the tables."""

import dataclasses
import functools
import math

import numpy as np
from recipe import Cell

import keras_bdl as bdl


@dataclasses.dataclass(frozen=True, eq=False)
class Result:
    """What one seed of a cell has given.

    Attributes:
        cell: The `Cell`.
        predictions: `ClassificationPrediction`s by set.
        trained: The trainings behind them, the first one first.
        ood: Names of the sets that are out of distribution.
    """

    cell: Cell
    predictions: dict
    trained: list
    ood: tuple

    @property
    def test(self):
        """The prediction on the test set."""
        return self.predictions[self.cell.test or "test"]

    @property
    def history(self):
        """Epoch by epoch what `fit` said, of the first training."""
        return self.trained[0].history

    def last(self, name):
        """Returns the last log of a name; NaN where nothing was trained.

        Args:
            name: The name.
        """
        return self.history.get(name, [np.nan])[-1]

    @property
    def parameters(self):
        """How many numbers were trained."""
        shapes = (
            variable.shape
            for one in self.trained
            for variable in one.model.trainable_variables
        )
        return sum(map(math.prod, shapes))

    @functools.cached_property
    def report(self):
        """What `keras_bdl.evaluate` says of the test set."""
        return bdl.evaluate(
            self.test,
            ood={name: self.predictions[name] for name in self.ood} or None,
            fractions=REFERRED,
        )

    def numbers(self):
        """Returns all numbers that are one number, by name."""
        found = {n: of(n, self) for n in _PLAIN if n != "parameters"}
        for name in self.ood:
            for metric in _OOD:
                found[f"{metric} {name}"] = of(f"{metric} {name}", self)
        return found


REFERRED = (0.0, 0.1, 0.2, 0.3)
# Name of a metric -> function of a `Result`.
_PLAIN = {
    "accuracy": lambda r: r.report.accuracy,
    "nll": lambda r: r.report.nll,
    "ece": lambda r: r.report.ece,
    "auroc": lambda r: r.report.auroc_correctness,
    "brier": lambda r: r.report.brier,
    # Mean confidence less accuracy.
    "overconfidence": lambda r: r.test.confidence.mean() - r.report.accuracy,
    # Over all tests along the training: who learns fast has a large one.
    "mean_val_accuracy": lambda r: np.mean(
        r.history.get("val_accuracy", np.nan)
    ),
    # Of the last five tests along the training: VOGN's paper on ImageNet.
    "median_val_accuracy": lambda r: np.median(
        r.history.get("val_accuracy", [np.nan])[-5:]
    ),
    "median_val_nll": lambda r: np.median(
        r.history.get("val_log_loss", [np.nan])[-5:]
    ),
    "train_accuracy": lambda r: r.last("accuracy"),
    "epochs": lambda r: r.trained[0].settings["epochs"],
    "train_nll": lambda r: r.last("log_loss"),
    # The first epochs trace and read; the median is one that does not. The
    # members of an ensemble are trained one after the other.
    "seconds_per_epoch": lambda r: sum(
        float(np.median(one.history.get("seconds", np.nan)))
        for one in r.trained
    ),
    "parameters": lambda r: r.parameters,
}
_OOD = {
    "ood_auroc": lambda scores: scores["max_probability"]["auroc"],
    "fpr95": lambda scores: scores["max_probability"]["fpr95"],
    "entropy_auroc": lambda scores: scores["entropy"]["auroc"],
    "entropy_divergence": lambda scores: scores["entropy_divergence"],
}


def of(metric, result):
    """Returns a number.

    Args:
        metric: Its name. Of a set that is out of distribution
            `"<metric> <set>"`; `"auroc_<percent>"` is the area under
            the curve of what is left when so many are referred.
        result: The `Result`.
    """
    name, _, ood = metric.partition(" ")
    if name in _OOD:
        return _OOD[name](result.report.ood[ood or result.ood[0]])
    if name.startswith("auroc_"):
        fraction = int(name.removeprefix("auroc_")) / 100
        return result.report.referral["auroc"][REFERRED.index(fraction)]
    if name not in _PLAIN:
        raise SystemExit(
            f"There is no metric {metric!r}, only {', '.join(_PLAIN | _OOD)}."
        )
    return float(_PLAIN[name](result))
