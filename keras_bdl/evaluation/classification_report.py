"""Report on the predictions of a classifier."""

import dataclasses

import numpy as np

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
from keras_bdl.reports.report import Report


@dataclasses.dataclass(frozen=True)
class ClassificationReport(Report):
    """Numbers of a classifier on labelled inputs. Made by `evaluate`.

    Attributes:
        num_inputs: Number of inputs.
        num_classes: Number of classes.
        num_samples: Number of posterior draws that were averaged.
        accuracy: Share of the inputs whose most probable class is right.
        nll: Mean negative log probability of the label.
        brier: Brier score, summed over the classes.
        brier_reliability: See `brier_decomposition`, as the next three.
        brier_resolution: High is good.
        brier_uncertainty: That of the labels, whatever the model.
        brier_residual: What the binning leaves over.
        num_bins: Number of bins, of the decomposition too.
        ece: Expected calibration error, bins of equal width.
        ece_mass: Expected calibration error, bins of equal mass.
        mce: Maximum calibration error, bins of equal width.
        auroc_correctness: Probability that an input classified right is more
            confident than one classified wrong.
        entropy: Mean predictive entropy in nats.
        expected_entropy: Mean aleatoric part of it, NaN for a single draw.
        mutual_information: Mean epistemic part, NaN for a single draw.
        referral: The `uncertainty` used, the referred `fractions`, and
            `accuracy` and `auroc` of what is left. The area is defined for
            two classes; with more it is NaN and not printed.
        ood: For each out-of-distribution set its `num_inputs`, the results
            of `ood_scores`, and `entropy_divergence`.
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
        prediction,
        y=None,
        ood: dict | None = None,
        num_bins: int = 20,
        fractions=FRACTIONS,
        uncertainty: str = "mutual_information",
    ):
        """Computes the report; arguments as in `evaluate`, `ood` a dict."""
        log_probs = log_probabilities("prediction", prediction)
        y = class_labels(labels_of(prediction, y), prediction.log_mean.shape)
        probs = np.exp(log_probs)
        chosen = np.take_along_axis(log_probs, y[:, None], axis=-1)
        correct = log_probs.argmax(-1) == y
        sureness = log_probs.max(-1)
        confidence = np.exp(sureness)
        parts = brier_decomposition(probs, y, num_bins)
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
                confidence, correct, num_bins
            ),
            ece_mass=calibration.expected_calibration_error(
                confidence, correct, num_bins, "mass"
            ),
            mce=calibration.maximum_calibration_error(
                confidence, correct, num_bins
            ),
            auroc_correctness=auroc(sureness[correct], sureness[~correct]),
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
        """Returns the first line."""
        return (
            f"Classification of {self.num_inputs} inputs into "
            f"{self.num_classes} classes, {self.num_samples} posterior "
            f"{'draw' if self.num_samples == 1 else 'draws'}"
        )

    def sections(self) -> list:
        """Returns pairs of the title of a table and its rows."""
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
        areas = referral_auroc(values, probs[:, 1], y, fractions).tolist()
    return {
        "uncertainty": used,
        "fractions": fractions,
        "accuracy": referral_accuracy(values, correct, fractions).tolist(),
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
            prediction.entropy, other.entropy, prediction.num_classes
        ),
    }
