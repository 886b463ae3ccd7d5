"""The metrics of the tables."""

import dataclasses
import functools
import math

import numpy as np
from recipe import Cell

import keras_bdl as bdl


@dataclasses.dataclass(frozen=True, eq=False)
class Result:
    """The result of one seed of a cell.

    Attributes:
        cell: The `Cell`.
        predictions: A `ClassificationPrediction` for each set, by name.
        trained: A list with the trainings; several for an ensemble.
        ood: Names of the out-of-distribution sets.
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
        """The logs of `fit` in each epoch of the first training, by name."""
        return self.trained[0].history

    def last(self, name):
        """Returns the last value of a log; NaN if nothing was trained.

        Args:
            name: Name of the log.
        """
        return self.history.get(name, [np.nan])[-1]

    @property
    def parameters(self):
        """Number of trained parameters."""
        shapes = (
            variable.shape
            for one in self.trained
            for variable in one.model.trainable_variables
        )
        return sum(map(math.prod, shapes))

    @functools.cached_property
    def report(self):
        """The report of `keras_bdl.evaluate` on the test set."""
        return bdl.evaluate(
            self.test,
            ood={name: self.predictions[name] for name in self.ood} or None,
            fractions=REFERRED,
        )

    def numbers(self):
        """Returns all metrics but the number of parameters, by name."""
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
    # Mean confidence minus accuracy.
    "overconfidence": lambda r: r.test.confidence.mean() - r.report.accuracy,
    # Mean over all validations: large for a method that learns fast.
    "mean_val_accuracy": lambda r: np.mean(
        r.history.get("val_accuracy", np.nan)
    ),
    # Median of the last five validations, as the VOGN paper does on ImageNet.
    "median_val_accuracy": lambda r: np.median(
        r.history.get("val_accuracy", [np.nan])[-5:]
    ),
    "median_val_nll": lambda r: np.median(
        r.history.get("val_log_loss", [np.nan])[-5:]
    ),
    "train_accuracy": lambda r: r.last("accuracy"),
    "epochs": lambda r: r.trained[0].settings.epochs,
    "train_nll": lambda r: r.last("log_loss"),
    # The first epochs trace and read data; the median epoch does neither. The
    # members of an ensemble train one after the other.
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
    """Returns the value of a metric.

    Args:
        metric: Name of the metric. `"<metric> <set>"` is a metric of an
            out-of-distribution set. `"auroc_<percent>"` is the area under the
            curve of the images that remain after this share is referred.
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
