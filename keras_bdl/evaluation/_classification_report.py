"""Report on the predictions of a classifier."""

import dataclasses
from collections.abc import Mapping
from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from keras_bdl._aliases import ArrayLike
from keras_bdl._arguments import check_count
from keras_bdl._reports._per_example import PerExample
from keras_bdl._reports._report import NOT_A_NUMBER
from keras_bdl._reports._report import Report
from keras_bdl.evaluation import _calibration as calibration
from keras_bdl.evaluation._brier import BrierDecomposition
from keras_bdl.evaluation._class_bins import ClassBins
from keras_bdl.evaluation._class_bins import per_class_scores
from keras_bdl.evaluation._class_bins import per_class_section
from keras_bdl.evaluation._example_scores import ExampleScores
from keras_bdl.evaluation._ood import ood_entry
from keras_bdl.evaluation._ood import ood_section
from keras_bdl.evaluation._ranking import auroc
from keras_bdl.evaluation._referral import FRACTIONS
from keras_bdl.evaluation._referral import checked_fractions
from keras_bdl.evaluation._referral import referral_accuracy
from keras_bdl.evaluation._referral import referral_auroc
from keras_bdl.evaluation._referral import uncertainty_of
from keras_bdl.evaluation._risk_coverage import aurc
from keras_bdl.evaluation._risk_coverage import aurc_of_examples
from keras_bdl.evaluation._risk_coverage import excess_aurc
from keras_bdl.evaluation._shift_scores import classification_shift
from keras_bdl.evaluation._shift_scores import shift_section
from keras_bdl.evaluation._smooth_calibration import smooth_calibration_error
from keras_bdl.prediction import ClassificationPrediction
from keras_bdl.prediction._predictions import labelled_entries
from keras_bdl.prediction._predictions import with_mask


@dataclasses.dataclass(frozen=True)
class ClassificationReport(Report):
    """Scores of a classifier on labelled inputs, from `evaluate`.

    With several labels for each input, such as tokens, each label counts as an
    input here, and `per_example` has the sums of each input. Padding and labels
    of the `ignore_class` do not count.

    Attributes:
        num_inputs: Number of inputs that count.
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
        ece_smooth: Calibration error without bins, from
            `smooth_calibration_error`.
        ece_classwise: Calibration error of all probabilities, from
            `classwise_calibration_error`.
        mce: Maximum calibration error, bins of equal width.
        auroc_correctness: Probability that a correct prediction is more
            confident than a wrong one.
        aurc: Area under the risk-coverage curve, with the uncertainty of
            `referral`; low is good. See `keras_bdl.evaluation.aurc`.
        excess_aurc: `aurc` minus the area of the best order.
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
        per_class: Dict of lists with one entry for each class: `precision`,
            `recall`, `f1`, `ece` (of the class against all others) and
            `count`. A ratio of zeros is NaN.
        shift: Dict from the name of a corruption to a dict of lists with one
            entry for each `severity`: `num_inputs`, `accuracy`, `nll`,
            `brier` and `ece`.
        per_example: `PerExample` with numbers of single inputs, for
            `keras_bdl.evaluation.table`. Not a part of `to_dict`.
    """

    TABLE_SCORES: ClassVar = ("accuracy", "nll", "brier", "ece", "aurc")

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
    ece_smooth: float
    ece_classwise: float
    mce: float
    auroc_correctness: float
    aurc: float
    excess_aurc: float
    entropy: float
    expected_entropy: float
    mutual_information: float
    referral: dict
    ood: dict
    per_class: dict
    shift: dict
    per_example: PerExample = dataclasses.field(
        repr=False, compare=False, metadata=NOT_A_NUMBER
    )

    @classmethod
    def from_prediction(
        cls,
        prediction: ClassificationPrediction,
        y: ArrayLike | None = None,
        *,
        ood: dict[str, ClassificationPrediction] | None = None,
        further: dict[str, dict] | None = None,
        shift: Mapping | None = None,
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
            further: Argument `scores` of `ood_scores`, by the name of the
                out-of-distribution set. Defaults to `None`.
            shift: Predictions for shifted inputs, as in `evaluate`. Defaults
                to `None`.
            num_bins: Number of bins. Defaults to `20`.
            fractions: Fractions of the inputs that are referred. Defaults to
                `(0.0, 0.1, 0.2, 0.3)`.
            uncertainty: Measure that ranks the inputs for referral. Defaults
                to `"mutual_information"`.
        """
        further = further or {}
        whole, counted = prediction, labelled_entries(prediction, y)
        prediction, y = counted.prediction, counted.y
        bins = ClassBins(
            prediction.num_classes, check_count("num_bins", num_bins)
        )
        scores = ExampleScores.of("prediction", prediction, y, bins=bins)
        correct, confidence = scores.correct, scores.confidence
        # Logarithms differ even between confidences that round to 1.
        ranked = scores.log_confidence
        used, values = uncertainty_of(prediction, uncertainty)
        several = prediction.num_samples > 1
        information = prediction.mutual_information if several else np.nan
        return cls(
            num_inputs=len(y),
            num_classes=prediction.num_classes,
            num_samples=prediction.num_samples,
            **scores.means(num_bins),
            **_brier_parts(bins),
            num_bins=num_bins,
            ece_mass=calibration.expected_calibration_error(
                confidence, correct, num_bins=num_bins, binning="mass"
            ),
            ece_smooth=smooth_calibration_error(confidence, correct),
            ece_classwise=float(bins.calibration_errors().mean()),
            mce=calibration.maximum_calibration_error(
                confidence, correct, num_bins=num_bins
            ),
            auroc_correctness=auroc(ranked[correct], ranked[~correct]),
            aurc=aurc(values, correct),
            excess_aurc=excess_aurc(values, correct),
            entropy=float(prediction.entropy.mean()),
            expected_entropy=(
                float(prediction.expected_entropy.mean()) if several else np.nan
            ),
            mutual_information=float(np.mean(information)),
            referral=_referral(prediction, used, values, scores, fractions),
            per_class=per_class_scores(y, scores.predicted, bins),
            ood={
                name: ood_entry(
                    name,
                    with_mask(whole, counted.kept),
                    other,
                    further.get(name),
                )
                for name, other in (ood or {}).items()
            },
            shift=classification_shift(shift or {}, counted, num_bins=num_bins),
            # The labels of one input depend on each other.
            per_example=PerExample.of_entries(
                y,
                counted.example,
                formulas={"ece": "gaps"},
                accuracy=correct,
                nll=scores.nll,
                brier=scores.brier,
                ece=scores.gaps(num_bins),
                aurc=aurc_of_examples(values, correct),
            ),
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
            per_class_section(self.per_class),
            *(shift_section(*item, _SHIFT) for item in self.shift.items()),
            *(ood_section(*item) for item in self.ood.items()),
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
            ["ECE, smooth", self.ece_smooth],
            ["ECE, classwise", self.ece_classwise],
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
        rows += [["AURC", self.aurc], ["excess AURC", self.excess_aurc]]
        measure = curve["uncertainty"].replace("_", " ")
        return f"Referral of the most uncertain, by {measure}", rows


_SHIFT = {"accuracy": "accuracy", "nll": "NLL", "brier": "Brier", "ece": "ECE"}


def _brier_parts(bins):
    names = BrierDecomposition._fields
    parts = zip(names, bins.brier_parts(), strict=True)
    return {f"brier_{name}": part for name, part in parts}


def _referral(prediction, used, values, scores, fractions):
    fractions = checked_fractions(fractions)
    areas = [np.nan] * len(fractions)
    if prediction.num_classes == 2:
        positive = prediction.log_mean.reshape(-1, 2)[:, 1]
        areas = referral_auroc(
            values,
            np.exp(positive, dtype="float64"),
            scores.y,
            fractions=fractions,
        ).tolist()
    return {
        "uncertainty": used,
        "fractions": fractions,
        "accuracy": referral_accuracy(
            values, scores.correct, fractions=fractions
        ).tolist(),
        "auroc": areas,
    }
