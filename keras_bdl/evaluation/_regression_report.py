"""Report on the predictions of a regression, scored by their densities."""

import copy
import dataclasses
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any
from typing import ClassVar

import numpy as np

from keras_bdl._aliases import ArrayLike
from keras_bdl._arguments import check_number
from keras_bdl._data._checked_inputs import labels_of
from keras_bdl._data._checked_inputs import numbers
from keras_bdl._data._checked_inputs import targets
from keras_bdl._reports import NOT_A_NUMBER
from keras_bdl._reports import PerExample
from keras_bdl._reports import Report
from keras_bdl.evaluation._shift import shift_scores
from keras_bdl.evaluation._shift import shift_section
from keras_bdl.prediction import RegressionPrediction

LEVELS = (0.5, 0.9, 0.95)


@dataclasses.dataclass(frozen=True)
class RegressionReport(Report):
    """Scores of a regression on inputs with targets, from `evaluate`.

    Attributes:
        num_values: Number of target values that count, over all inputs.
            Padding does not count.
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
            target: E|X - y| - E|X - X'| / 2 with X and X' independent samples
            of the density. The score is the absolute error if the predictive
            variance is zero.
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
        """Returns the report, with the options of `evaluate`."""
        whole = np.shape(prediction.mean)
        all_targets = targets(labels_of(prediction, y), whole, prediction.mask)
        kept = _kept(prediction)
        mean = numbers("prediction.mean", _chosen(prediction.mean, kept))
        y = _chosen(all_targets, kept)
        density, means, variances = _density(prediction, mean, kept)
        log_density = np.full(y.shape, np.nan)
        if variances.min() > 0:
            log_density = log_densities(y, means, variances)
        crps = crps_of_values(y, means, variances)
        squared_error = (y - mean) ** 2
        return cls(
            num_values=y.size,
            num_samples=prediction.num_samples,
            rmse=float(np.sqrt(np.mean(squared_error))),
            density=density,
            log_likelihood=float(np.mean(log_density)),
            crps=float(np.mean(crps)),
            coverage=interval_coverages(y, means, variances, levels),
            variance_within=_mean(prediction.variance_within, whole, kept),
            variance_between=_mean(prediction.variance_between, whole, kept),
            shift=shift_scores(
                shift,
                _check_regression,
                lambda name, other: cls._shifted(
                    name, other, prediction, all_targets, levels
                ),
            )
            if shift
            else {},
            # The targets of one input depend on each other.
            per_example=PerExample.of_entries(
                y,
                np.nonzero(kept)[0],
                formulas={"rmse": "root"},
                rmse=squared_error,
                log_likelihood=log_density,
                crps=crps,
            ),
        )

    @classmethod
    def _shifted(
        cls,
        name: str,
        shifted: RegressionPrediction,
        prediction: RegressionPrediction,
        y: np.ndarray,
        levels: Sequence[float],
    ) -> dict[str, Any]:
        """Returns the scores of a prediction for shifted inputs."""
        if shifted.y is None and np.shape(shifted.mean) != y.shape:
            raise ValueError(
                f"`{name}` must be a prediction for the inputs of "
                "`prediction`, shifted and in the same order, or hold targets "
                "of its own. Received: a mean of shape "
                f"{np.shape(shifted.mean)} for targets of shape {y.shape}"
            )
        own = shifted.y
        if own is None:
            # The targets of padding are not known.
            own, shifted = y, copy.copy(shifted)
            if prediction.mask is not None or shifted.mask is not None:
                shifted.mask = _kept(prediction) & _kept(shifted)
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


def _check_regression(name: str, prediction: Any) -> None:
    if getattr(prediction, "task", None) != "regression":
        raise ValueError(
            f"`{name}` must be a `RegressionPrediction` for one model output, "
            "from `keras_bdl.predict`. "
            f"Received: {type(prediction).__name__}"
        )


def _kept(prediction: RegressionPrediction) -> np.ndarray:
    """Returns whether each target counts, in the shape of the mean."""
    shape = np.shape(prediction.mean)
    kept = np.ones(shape, bool)
    if prediction.mask is not None:
        kept = prediction.mask
    if not kept.any():
        raise ValueError(
            "`prediction` must have a target that counts. Received: "
            f"{kept.size} targets, which a mask leaves out"
        )
    return kept


def _chosen(values: ArrayLike, kept: np.ndarray) -> np.ndarray:
    """Returns the values that count, on one axis, after that of samples."""
    values = np.asarray(values)
    return values.reshape(*values.shape[: values.ndim - kept.ndim], -1)[
        ..., kept.ravel()
    ]


def _mean(values: ArrayLike, shape: tuple, kept: np.ndarray) -> float:
    return float(np.mean(_chosen(np.broadcast_to(values, shape), kept)))


def _density(
    prediction: RegressionPrediction, mean: np.ndarray, kept: np.ndarray
) -> tuple[str, np.ndarray, np.ndarray]:
    """Returns the name, means and variances of the predictive density."""
    if prediction.has_samples and prediction.sample_variances is not None:
        samples = np.asarray(prediction.samples, dtype="float64")
        variances = np.broadcast_to(prediction.sample_variances, samples.shape)
        variances = _chosen(variances, kept)
        if variances.min() > 0:
            return "mixture", _chosen(samples, kept), variances
    variance = np.broadcast_to(prediction.known_variance, kept.shape)
    variance = numbers("prediction.variance", _chosen(variance, kept))
    if variance.min() < 0:
        raise ValueError(
            "`variances` must not be negative. "
            f"Received: a smallest variance of {variance.min():g}"
        )
    return "gaussian", mean[None], variance[None]


def log_densities(
    y: np.ndarray, means: np.ndarray, variances: np.ndarray
) -> np.ndarray:
    """Returns the log density of each value under its mixture of Gaussians.

    The first axis of means and variances has the components, one for each
    posterior sample, here and in the next two functions.
    """
    log_density = -0.5 * (
        np.log(2 * np.pi * variances) + (y - means) ** 2 / variances
    )
    return np.logaddexp.reduce(log_density, axis=0) - np.log(len(means))


def interval_coverages(
    y: np.ndarray,
    means: np.ndarray,
    variances: np.ndarray,
    levels: Sequence[float],
) -> dict[float, float]:
    """Returns the fraction of values inside their interval, for each level.

    A value is inside if the distribution function of its mixture is between
    `(1 - level)/2` and `(1 + level)/2`. NaN if a variance is zero.
    """
    from scipy.special import ndtr

    if variances.min() <= 0:
        return dict.fromkeys(levels, np.nan)
    for level in levels:
        check_number("level", level, above=0.0, below=1.0)
    cdf = ndtr((y - means) / np.sqrt(variances)).mean(0)
    reach = np.abs(2 * cdf - 1)
    return {level: float(np.mean(reach <= level)) for level in levels}


def crps_of_values(
    y: np.ndarray, means: np.ndarray, variances: np.ndarray
) -> np.ndarray:
    """Returns the continuous ranked probability score of each value.

    With X and X' independent samples of the mixture,

        CRPS = E|X - y| - E|X - X'| / 2                                   (1)

    Both expectations have a closed form for Gaussian components. A component
    with the variance zero is a point.

    Reference:
        - Gneiting and Raftery, 2007, eq. 21; Grimit et al., 2006, for
          mixtures
    """
    distance = _mean_absolute(y - means, variances).mean(0)
    # The loop keeps memory linear in the number of components.
    spread = np.zeros(y.shape)
    for m, v in zip(means, variances, strict=True):
        spread += _mean_absolute(means - m, variances + v).mean(0)
    return distance - spread / len(means) / 2  # (1)


def _mean_absolute(mean: np.ndarray, variance: np.ndarray) -> np.ndarray:
    """Returns E|X| of a Gaussian X."""
    from scipy.special import erf

    # If the variance is zero, 1 replaces it to avoid a division by zero, and
    # the last line replaces the result.
    scale = np.sqrt(2 * np.where(variance > 0, variance, 1.0))
    z = mean / scale
    spread = mean * erf(z) + scale * np.exp(-(z**2)) / np.sqrt(np.pi)
    return np.where(variance > 0, spread, np.abs(mean))
