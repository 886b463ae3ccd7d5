"""Report on the predictions of a regression."""

import dataclasses
from collections.abc import Mapping
from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from keras_bdl.aliases import ArrayLike
from keras_bdl.data.checked_inputs import labels_of
from keras_bdl.data.checked_inputs import numbers
from keras_bdl.data.checked_inputs import targets
from keras_bdl.evaluation.gaussian_mixture import crps_of_values
from keras_bdl.evaluation.gaussian_mixture import log_densities
from keras_bdl.evaluation.gaussian_mixture import mixture_interval_coverage
from keras_bdl.evaluation.shift_scores import shift_scores
from keras_bdl.evaluation.shift_scores import shift_section
from keras_bdl.prediction import RegressionPrediction
from keras_bdl.reports.per_example import PerExample
from keras_bdl.reports.report import NOT_A_NUMBER
from keras_bdl.reports.report import Report

LEVELS = (0.5, 0.9, 0.95)


@dataclasses.dataclass(frozen=True)
class RegressionReport(Report):
    """Scores of a regression on inputs with targets, from `evaluate`.

    Attributes:
        num_values: Number of target values, over all inputs.
        num_samples: Number of posterior samples in the average.
        rmse: Root of the mean squared error of the predictive mean.
        density: The predictive density that defines `log_likelihood`, `crps`
            and `coverage`. `"mixture"` has one Gaussian for each sample. The
            report uses the mixture if the prediction has kept its samples and
            the variance of the noise is known and positive. Otherwise the
            density is `"gaussian"`, a Gaussian with the total variance.
        log_likelihood: Mean log density of a target value, NaN if any
            predictive variance is zero.
        crps: Mean continuous ranked probability score, in the units of the
            target. The score is the absolute error if the predictive variance
            is zero.
        coverage: A dictionary from each level to the fraction of target values
            inside their central interval. The level is the probability of the
            interval. The fraction is NaN if any predictive variance is zero.
        variance_within: Mean variance of the noise, the aleatoric part.
        variance_between: Mean variance over the samples, the epistemic part.
        shift: Dict from the name of a corruption to a dict of lists with one
            entry for each `severity`: `num_values`, `rmse`, `log_likelihood`,
            `crps`, `variance_within`, `variance_between`, and `coverage` of
            the largest level.
        per_example: `PerExample` with numbers of single inputs, for
            `keras_bdl.evaluation.table`. Not a part of `to_dict`.
    """

    TABLE_SCORES: ClassVar = ("rmse", "log_likelihood", "crps")

    num_values: int
    num_samples: int
    rmse: float
    density: str
    log_likelihood: float
    crps: float
    coverage: dict
    variance_within: float
    variance_between: float
    shift: dict
    per_example: PerExample = dataclasses.field(
        repr=False, compare=False, metadata=NOT_A_NUMBER
    )

    @classmethod
    def from_prediction(
        cls,
        prediction: RegressionPrediction,
        y: ArrayLike | None = None,
        *,
        shift: Mapping | None = None,
        levels: Sequence[float] = LEVELS,
    ) -> "RegressionReport":
        """Returns the report on a prediction.

        Args:
            prediction: A `RegressionPrediction`.
            y: Targets. Defaults to `None`, the targets in the prediction.
            shift: Predictions for shifted inputs, as in `evaluate`. Defaults
                to `None`.
            levels: Probabilities of the intervals. Defaults to
                `(0.5, 0.9, 0.95)`.
        """
        mean = numbers("prediction.mean", prediction.mean)
        y = targets(labels_of(prediction, y), mean.shape)
        density, means, variances = _density(prediction, mean)
        coverage = dict.fromkeys(levels, np.nan)
        log_density = np.full(y.shape, np.nan)
        if variances.min() > 0:
            log_density = log_densities(y, means, variances)
            coverage = {
                level: mixture_interval_coverage(
                    y, means, variances, level=level
                )
                for level in levels
            }
        crps = crps_of_values(y, means, variances)
        squared_error = (y - mean) ** 2
        return cls(
            num_values=y.size,
            num_samples=prediction.num_samples,
            rmse=float(np.sqrt(np.mean(squared_error))),
            density=density,
            log_likelihood=float(np.mean(log_density)),
            crps=float(np.mean(crps)),
            coverage=coverage,
            variance_within=float(np.mean(prediction.variance_within)),
            variance_between=float(np.mean(prediction.variance_between)),
            shift=shift_scores(
                shift or {},
                _check_regression,
                lambda name, other: cls._shifted(name, other, mean, y, levels),
            ),
            per_example=PerExample.of(
                y,
                formulas={"rmse": "root"},
                # The targets of one input depend on each other.
                **{
                    name: values.reshape(len(values), -1).mean(1)
                    for name, values in (
                        ("rmse", squared_error),
                        ("log_likelihood", log_density),
                        ("crps", crps),
                    )
                },
            ),
        )

    @classmethod
    def _shifted(cls, name, shifted, mean, y, levels):
        """Returns the scores of a prediction for shifted inputs."""
        if shifted.y is None and np.shape(shifted.mean) != mean.shape:
            raise ValueError(
                f"`{name}` must be a prediction for the inputs of "
                "`prediction`, shifted and in the same order, or hold targets "
                "of its own. Received: a mean of shape "
                f"{np.shape(shifted.mean)} for targets of shape {mean.shape}"
            )
        own = y if shifted.y is None else shifted.y
        report = cls.from_prediction(shifted, own, levels=levels)
        scores = {key: report[key] for key in _SHIFT if key != "coverage"}
        coverage = report.coverage[max(levels)] if levels else np.nan
        return {"num_values": report.num_values, **scores, "coverage": coverage}

    def title(self) -> str:
        """Returns the first line of the printed report."""
        return (
            f"Regression of {self.num_values} values, {self.num_samples} "
            f"posterior {'sample' if self.num_samples == 1 else 'samples'}"
        )

    def sections(self) -> list[tuple]:
        """Returns a pair of title and rows for each table."""
        density = {
            "gaussian": "Gaussian of the total variance",
            "mixture": f"mixture of {self.num_samples} Gaussians",
        }[self.density]
        widest = f"{100 * max(self.coverage, default=0):g} % covers"
        heads = {**_SHIFT, "coverage": widest}
        if not self.variance_within:
            density += ", without noise"
        return [
            ("Mean", [["RMSE", self.rmse]]),
            (
                f"Density: {density}",
                [
                    ["log-likelihood", self.log_likelihood],
                    ["CRPS", self.crps],
                    *(
                        [f"{100 * level:g} % interval covers", share]
                        for level, share in self.coverage.items()
                    ),
                ],
            ),
            (
                "Variance, mean over the values",
                [
                    ["within samples (aleatoric)", self.variance_within],
                    ["between samples (epistemic)", self.variance_between],
                ],
            ),
            *(shift_section(*item, heads) for item in self.shift.items()),
        ]


_SHIFT = {
    "rmse": "RMSE",
    "log_likelihood": "log-lik.",
    "crps": "CRPS",
    "coverage": "coverage",
    "variance_within": "within",
    "variance_between": "between",
}


def _check_regression(name, prediction):
    if getattr(prediction, "task", None) != "regression":
        raise ValueError(
            f"`{name}` must be a `RegressionPrediction` for one model output, "
            "from `keras_bdl.predict`. "
            f"Received: {type(prediction).__name__}"
        )


def _density(prediction, mean):
    """Returns the name, means and variances of the predictive density."""
    if prediction.has_samples and prediction.sample_variances is not None:
        means = np.asarray(prediction.samples, dtype="float64")
        variances = np.broadcast_to(prediction.sample_variances, means.shape)
        if variances.min() > 0:
            return "mixture", means, variances
    variance = numbers("prediction.variance", prediction.variance)
    variance = np.broadcast_to(variance, mean.shape)
    return "gaussian", mean[None], variance[None]
