"""Report on the predictions of a classifier."""

import dataclasses
from collections.abc import Sequence

import numpy as np

from keras_bdl.aliases import ArrayLike
from keras_bdl.data.checked_inputs import class_labels
from keras_bdl.data.checked_inputs import labels_of
from keras_bdl.data.checked_inputs import log_probabilities
from keras_bdl.evaluation import calibration
from keras_bdl.evaluation.brier import brier_decomposition
from keras_bdl.evaluation.brier import brier_score
from keras_bdl.evaluation.ood import entropy_divergence
from keras_bdl.evaluation.ood import ood_scores
from keras_bdl.evaluation.ranking import auroc
from keras_bdl.evaluation.referral import FRACTIONS
from keras_bdl.evaluation.referral import checked_fractions
from keras_bdl.evaluation.referral import referral_accuracy
from keras_bdl.evaluation.referral import referral_auroc
from keras_bdl.evaluation.referral import uncertainty_of
from keras_bdl.prediction import ClassificationPrediction
from keras_bdl.reports.report import Report


@dataclasses.dataclass(frozen=True)
class ClassificationReport(Report):
    """Scores of a classifier on labelled inputs, from `evaluate`.

    Attributes:
        num_inputs: Number of inputs.
        num_classes: Number of classes.
        num_samples: Number of posterior samples in the average.
        accuracy: Fraction of inputs whose most probable class is correct.
        nll: Mean negative log probability of the label.
        brier: Brier score, summed over the classes.
        brier_reliability: Reliability in `brier_decomposition`; low is good.
        brier_resolution: Resolution in `brier_decomposition`; high is good.
        brier_uncertainty: Uncertainty of the labels, equal for all models.
        brier_residual: Residual in `brier_decomposition`, the error from
            binning.
        num_bins: Number of bins of the calibration errors and of
            `brier_decomposition`.
        ece: Expected calibration error, bins of equal width.
        ece_mass: Expected calibration error, bins of equal mass.
        mce: Maximum calibration error, bins of equal width.
        auroc_correctness: Probability that a correct prediction is more
            confident than a wrong one.
        entropy: Mean predictive entropy in nats.
        expected_entropy: Mean aleatoric part of the entropy, NaN for a single
            sample.
        mutual_information: Mean epistemic part of the entropy, NaN for a
            single sample.
        referral: Dict with the `uncertainty` used, the referred `fractions`,
            and the `accuracy` and `auroc` of the remaining inputs. `auroc` is
            NaN for more than two classes.
        ood: Dict from the name of an out-of-distribution set to a dict. The
            inner dict holds `num_inputs`, `entropy_divergence` and the results
            of `ood_scores`.
    """

    num_inputs: int
    num_classes: int
    num_samples: int
    accuracy: float
    nll: float
    brier: float
    brier_reliability: float
    brier_resolution: float
    brier_uncertainty: float
    brier_residual: float
    num_bins: int
    ece: float
    ece_mass: float
    mce: float
    auroc_correctness: float
    entropy: float
    expected_entropy: float
    mutual_information: float
    referral: dict
    ood: dict

    @classmethod
    def from_prediction(
        cls,
        prediction: ClassificationPrediction,
        y: ArrayLike | None = None,
        *,
        ood: dict[str, ClassificationPrediction] | None = None,
        num_bins: int = 20,
        fractions: Sequence[float] = FRACTIONS,
        uncertainty: str = "mutual_information",
    ) -> "ClassificationReport":
        """Returns the report on a prediction.

        Args:
            prediction: A `ClassificationPrediction`.
            y: Labels. Defaults to `None`, the labels in the prediction.
            ood: Predictions for out-of-distribution inputs, by name. Defaults
                to `None`.
            num_bins: Number of bins. Defaults to `20`.
            fractions: Fractions of the inputs that are referred. Defaults to
                `(0.0, 0.1, 0.2, 0.3)`.
            uncertainty: Measure that ranks the inputs for referral. Defaults
                to `"mutual_information"`.
        """
        log_probs = log_probabilities("prediction", prediction)
        y = class_labels(labels_of(prediction, y), prediction.log_mean.shape)
        probs = np.exp(log_probs)
        chosen = np.take_along_axis(log_probs, y[:, None], axis=-1)
        correct = log_probs.argmax(-1) == y
        # Logarithms differ even between confidences that round to 1.
        log_confidence = log_probs.max(-1)
        confidence = np.exp(log_confidence)
        parts = brier_decomposition(probs, y, num_bins=num_bins)
        several = prediction.num_samples > 1
        return cls(
            num_inputs=len(y),
            num_classes=prediction.num_classes,
            num_samples=prediction.num_samples,
            accuracy=float(correct.mean()),
            nll=float(-chosen.mean()),
            brier=brier_score(probs, y),
            **{f"brier_{k}": v for k, v in parts._asdict().items()},
            num_bins=num_bins,
            ece=calibration.expected_calibration_error(
                confidence, correct, num_bins=num_bins
            ),
            ece_mass=calibration.expected_calibration_error(
                confidence, correct, num_bins=num_bins, binning="mass"
            ),
            mce=calibration.maximum_calibration_error(
                confidence, correct, num_bins=num_bins
            ),
            auroc_correctness=auroc(
                log_confidence[correct], log_confidence[~correct]
            ),
            entropy=float(prediction.entropy.mean()),
            expected_entropy=(
                float(prediction.expected_entropy.mean()) if several else np.nan
            ),
            mutual_information=(
                float(prediction.mutual_information.mean())
                if several
                else np.nan
            ),
            referral=_referral(
                prediction, probs, y, correct, fractions, uncertainty
            ),
            ood={
                name: _ood(name, prediction, other)
                for name, other in (ood or {}).items()
            },
        )

    def title(self) -> str:
        """Returns the first line of the printed report."""
        return (
            f"Classification of {self.num_inputs} inputs into "
            f"{self.num_classes} classes, {self.num_samples} posterior "
            f"{'sample' if self.num_samples == 1 else 'samples'}"
        )

    def sections(self) -> list[tuple]:
        """Returns a pair of title and rows for each table."""
        return [
            ("Quality", self._quality()),
            (f"Calibration, {self.num_bins} bins", self._calibration()),
            ("Uncertainty in nats, mean", self._uncertainty()),
            self._referral_section(),
            *map(self._ood_section, self.ood),
        ]

    def _quality(self):
        return [
            ["accuracy", self.accuracy],
            ["negative log-likelihood", self.nll],
            ["Brier score", self.brier],
            ["  = reliability", self.brier_reliability],
            ["  - resolution", self.brier_resolution],
            ["  + uncertainty of labels", self.brier_uncertainty],
            ["  + residual of binning", self.brier_residual],
        ]

    def _calibration(self):
        return [
            ["ECE, equal width", self.ece],
            ["ECE, equal mass", self.ece_mass],
            ["MCE, equal width", self.mce],
            ["AUROC of correctness", self.auroc_correctness],
        ]

    def _uncertainty(self):
        return [
            ["entropy (total)", self.entropy],
            ["expected entropy (aleatoric)", self.expected_entropy],
            ["mutual information (epistemic)", self.mutual_information],
        ]

    def _referral_section(self):
        curve = self.referral
        rows = [
            ["referred", *(f"{100 * f:g} %" for f in curve["fractions"])],
            ["accuracy", *curve["accuracy"]],
        ]
        if self.num_classes == 2:
            rows.append(["AUROC", *curve["auroc"]])
        measure = curve["uncertainty"].replace("_", " ")
        return f"Referral of the most uncertain, by {measure}", rows

    def _ood_section(self, name):
        entry = self.ood[name]
        rows = [["", "AUROC", "AUPR in", "AUPR out", "FPR95"]]
        for measure in ("max_probability", "entropy", "mutual_information"):
            rows.append([measure.replace("_", " "), *entry[measure].values()])
        rows.append(["entropy KL, both ways", entry["entropy_divergence"]])
        title = f"Out of distribution: {name}, {entry['num_inputs']} inputs"
        return title, rows


def _referral(prediction, probs, y, correct, fractions, uncertainty):
    used, values = uncertainty_of(prediction, uncertainty)
    fractions = checked_fractions(fractions)
    areas = [np.nan] * len(fractions)
    if prediction.num_classes == 2:
        areas = referral_auroc(
            values, probs[:, 1], y, fractions=fractions
        ).tolist()
    return {
        "uncertainty": used,
        "fractions": fractions,
        "accuracy": referral_accuracy(
            values, correct, fractions=fractions
        ).tolist(),
        "auroc": areas,
    }


def _ood(name, prediction, other):
    log_probabilities(f"ood[{name!r}]", other)
    if other.num_classes != prediction.num_classes:
        raise ValueError(
            f"`ood[{name!r}]` must be a prediction of the same model, with "
            f"{prediction.num_classes} classes. "
            f"Received: {other.num_classes} classes"
        )
    return {
        "num_inputs": other.entropy.size,
        **ood_scores(prediction, other),
        "entropy_divergence": entropy_divergence(
            prediction.entropy,
            other.entropy,
            num_classes=prediction.num_classes,
        ),
    }
