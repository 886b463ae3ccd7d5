"""Report on the predictions of a classifier."""

import dataclasses
from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any
from typing import ClassVar

import numpy as np

from keras_bdl._aliases import ArrayLike
from keras_bdl._arguments import check_count
from keras_bdl._data._checked_inputs import check_classification
from keras_bdl._data._checked_inputs import probability_blocks
from keras_bdl._reports import NOT_A_NUMBER
from keras_bdl._reports import PerExample
from keras_bdl._reports import Report
from keras_bdl.evaluation._calibration import ClassBins
from keras_bdl.evaluation._calibration import calibration_errors
from keras_bdl.evaluation._calibration import smooth_calibration_error
from keras_bdl.evaluation._ood import ood_entry
from keras_bdl.evaluation._ood import ood_section
from keras_bdl.evaluation._ranking import aurc_of_examples
from keras_bdl.evaluation._ranking import auroc
from keras_bdl.evaluation._ranking import checked_fractions
from keras_bdl.evaluation._ranking import referral_accuracy
from keras_bdl.evaluation._ranking import referral_auroc
from keras_bdl.evaluation._ranking import risk_coverage_areas
from keras_bdl.evaluation._ranking import uncertainty_of
from keras_bdl.evaluation._shift import shift_scores
from keras_bdl.evaluation._shift import shift_section
from keras_bdl.prediction import ClassificationPrediction
from keras_bdl.prediction._predictions import CountedEntries
from keras_bdl.prediction._predictions import chosen_entries
from keras_bdl.prediction._predictions import counted_entries
from keras_bdl.prediction._predictions import labelled_entries
from keras_bdl.prediction._predictions import with_mask

# A longer table of classes shows only those with the lowest F1.
MOST_ROWS = 10
_NAMES = {"ece": "ECE", "f1": "F1", "iou": "IoU"}
_SHIFT = {"accuracy": "accuracy", "nll": "NLL", "brier": "Brier", "ece": "ECE"}


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
        brier: Brier score: mean squared error of the probabilities, summed
            over the classes, between 0 and 2. It is `brier_reliability` minus
            `brier_resolution` plus the next two.
        brier_reliability: Mean squared distance, over bins of the probability
            of each class, between the mean probability and the frequency of
            the class; low is good.
        brier_resolution: Mean squared distance between the frequency of a
            class in a bin and its frequency in all; high is good.
        brier_uncertainty: Uncertainty of the labels, equal for all models.
        brier_residual: Error from binning, zero if all probabilities in a bin
            are equal.
        num_bins: Number of bins of the calibration errors and of the parts of
            the Brier score.
        ece: Expected calibration error, the mean distance between confidence
            and accuracy over bins of the confidence of equal width.
        ece_mass: The same over bins with equally many inputs.
        ece_smooth: Calibration error without bins, of
            [Blasiok and Nakkiran, 2023](https://arxiv.org/abs/2309.12236). It
            changes only a little with the confidences.
        ece_classwise: Calibration error of all probabilities, the mean over
            the classes of that of their probability. It shrinks with the
            number of classes.
        mce: Maximum calibration error, the largest distance between confidence
            and accuracy in a bin of equal width. Noisy on small data.
        auroc_correctness: Probability that a correct prediction is more
            confident than a wrong one.
        aurc: Area under the risk-coverage curve, with the uncertainty of
            `referral`; low is good. It is the mean error rate over all shares
            of inputs, the least uncertain ones, that the model may answer.
        excess_aurc: `aurc` minus the area of the best order, 0 for a perfect
            ranking at every accuracy.
        entropy: Mean predictive entropy in nats.
        expected_entropy: Mean aleatoric part of the entropy, NaN for a single
            sample.
        mutual_information: Mean epistemic part of the entropy, NaN for a
            single sample.
        referral: Dict with the `uncertainty` used, the referred `fractions`,
            and the `accuracy` and `auroc` of the remaining inputs. `auroc` is
            NaN for more than two classes.
        ood: Dict from the name of an out-of-distribution set to a dict. The
            inner dict holds `num_inputs`, the results of
            `keras_bdl.evaluation.ood_detection` for `mutual_information` (NaN
            for a single sample), `entropy`, `max_probability` and further
            scores, and `entropy_divergence`: the symmetrised KL divergence, in
            nats, between the entropies inside and outside in 50 bins.
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
        y: ArrayLike | None,
        *,
        ood: dict[str, ClassificationPrediction],
        further: dict[str, dict],
        shift: Mapping | None,
        num_bins: int,
        fractions: Sequence[float],
        uncertainty: str,
    ) -> "ClassificationReport":
        """Returns the report on a prediction, with the options of `evaluate`.

        `further` has the scores of `evaluate` by the name of the set in `ood`.
        """
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
        ece_mass, _ = calibration_errors(
            confidence, correct, num_bins=num_bins, binning="mass"
        )
        _, mce = calibration_errors(confidence, correct, num_bins=num_bins)
        aurc, excess_aurc = risk_coverage_areas(values, correct)
        return cls(
            num_inputs=len(y),
            num_classes=prediction.num_classes,
            num_samples=prediction.num_samples,
            **scores.means(num_bins),
            **{f"brier_{name}": v for name, v in bins.brier_parts().items()},
            num_bins=num_bins,
            ece_mass=ece_mass,
            ece_smooth=smooth_calibration_error(confidence, correct),
            ece_classwise=float(bins.calibration_errors().mean()),
            mce=mce,
            auroc_correctness=auroc(ranked[correct], ranked[~correct]),
            aurc=aurc,
            excess_aurc=excess_aurc,
            entropy=float(prediction.entropy.mean()),
            expected_entropy=(
                float(prediction.expected_entropy.mean()) if several else np.nan
            ),
            mutual_information=float(np.mean(information)),
            referral=_referral(prediction, used, values, scores, fractions),
            per_class=_per_class(y, scores.predicted, bins),
            ood={
                name: ood_entry(
                    name, with_mask(whole, counted.kept), other, further[name]
                )
                for name, other in ood.items()
            },
            shift=shift_scores(
                shift, check_classification, _shifted_by(counted, num_bins)
            )
            if shift
            else {},
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
            uncertainty_section(self),
            self._referral_section(),
            per_class_section(self.per_class),
            *(shift_section(*item, _SHIFT) for item in self.shift.items()),
            *(ood_section(*item) for item in self.ood.items()),
        ]

    def _quality(self) -> list:
        return [
            ["accuracy", self.accuracy],
            ["negative log-likelihood", self.nll],
            ["Brier score", self.brier],
            ["  = reliability", self.brier_reliability],
            ["  - resolution", self.brier_resolution],
            ["  + uncertainty of labels", self.brier_uncertainty],
            ["  + residual of binning", self.brier_residual],
        ]

    def _calibration(self) -> list:
        return [
            ["ECE, equal width", self.ece],
            ["ECE, equal mass", self.ece_mass],
            ["ECE, smooth", self.ece_smooth],
            ["ECE, classwise", self.ece_classwise],
            ["MCE, equal width", self.mce],
            ["AUROC of correctness", self.auroc_correctness],
        ]

    def _referral_section(self) -> tuple[str, list]:
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


@dataclasses.dataclass(frozen=True)
class ExampleScores:
    """Scores of every input, from one pass over the probabilities.

    Attributes:
        y: Integer label of each input.
        predicted: Most probable class of each input.
        nll: Negative log probability of the label.
        brier: Brier score of each input.
        log_confidence: Logarithm of the highest probability.
    """

    y: np.ndarray
    predicted: np.ndarray
    nll: np.ndarray
    brier: np.ndarray
    log_confidence: np.ndarray

    @classmethod
    def of(
        cls,
        name: str,
        prediction: ClassificationPrediction,
        y: np.ndarray,
        *,
        bins: ClassBins | None = None,
    ) -> "ExampleScores":
        """Returns the scores of a checked prediction; adds it to the bins.

        Memory beside the result does not grow with the number of inputs.
        """
        predicted = np.empty(len(y), "int64")
        nll, brier, confidence = (np.empty(len(y)) for _ in range(3))
        for rows, log_p, p in probability_blocks(name, prediction):
            labels = y[rows, None]
            predicted[rows] = log_p.argmax(-1)
            confidence[rows] = log_p.max(-1)
            nll[rows] = -np.take_along_axis(log_p, labels, axis=-1)[:, 0]
            chosen = np.take_along_axis(p, labels, axis=-1)[:, 0]
            brier[rows] = np.einsum("ij,ij->i", p, p) - 2 * chosen + 1
            if bins:
                bins.add(p, y[rows])
        return cls(y, predicted, nll, brier, confidence)

    @property
    def correct(self) -> np.ndarray:
        """Whether the most probable class is the label."""
        return self.predicted == self.y

    @property
    def confidence(self) -> np.ndarray:
        """The highest probability."""
        return np.exp(self.log_confidence)

    def gaps(self, num_bins: int) -> np.ndarray:
        """Returns confidence minus correctness, and the bin of each input."""
        bins = np.clip(np.floor(self.confidence * num_bins), 0, num_bins - 1)
        return np.stack([self.confidence - self.correct, bins], 1)

    def means(self, num_bins: int) -> dict[str, float]:
        """Returns accuracy, nll, brier and ece."""
        return {
            "accuracy": float(self.correct.mean()),
            "nll": float(self.nll.mean()),
            "brier": float(self.brier.mean()),
            "ece": calibration_errors(
                self.confidence, self.correct, num_bins=num_bins
            )[0],
        }


def _referral(
    prediction: ClassificationPrediction,
    used: str,
    values: np.ndarray,
    scores: ExampleScores,
    fractions: Sequence[float],
) -> dict[str, Any]:
    fractions = checked_fractions(fractions)
    areas = [np.nan] * len(fractions)
    if prediction.num_classes == 2:
        positive = prediction.log_mean.reshape(-1, 2)[:, 1]
        areas = referral_auroc(
            values,
            np.exp(positive, dtype="float64"),
            scores.y,
            fractions=fractions,
        )
    return {
        "uncertainty": used,
        "fractions": fractions,
        "accuracy": referral_accuracy(
            values, scores.correct, fractions=fractions
        ),
        "auroc": areas,
    }


def _shifted_by(counted: CountedEntries, num_bins: int) -> Callable:
    """Returns a function to the scores of a prediction for shifted inputs.

    `counted` has the entries for the inputs that are not shifted.
    """

    def scores_of(
        name: str, shifted: ClassificationPrediction
    ) -> dict[str, Any]:
        if shifted.num_classes != counted.prediction.num_classes:
            raise ValueError(
                f"`{name}` must be a prediction of the same model, with "
                f"{counted.prediction.num_classes} classes. "
                f"Received: {shifted.num_classes} classes"
            )
        inputs = shifted.log_mean.shape[:-1]
        if shifted.y is not None:
            own = labelled_entries(shifted, name=name)
        elif np.prod(inputs) == len(counted.kept):
            kept = counted.kept & counted_entries(shifted, name=name).kept
            own = chosen_entries(shifted, kept, counted.labels, name=name)
        else:
            raise ValueError(
                f"`{name}` must be a prediction for the inputs of "
                "`prediction`, shifted and in the same order, or hold labels "
                f"of its own. Received: {np.prod(inputs)} inputs for "
                f"{len(counted.kept)} labels"
            )
        scores = ExampleScores.of(name, own.prediction, own.y)
        return {"num_inputs": len(own.y), **scores.means(num_bins)}

    return scores_of


def _per_class(
    y: np.ndarray, predicted: np.ndarray, bins: ClassBins
) -> dict[str, list]:
    """Returns a list with one number for each class, by name.

    For class k, with `tp` the number of inputs of the class that were
    classified as k,

        precision = tp / number of inputs classified as k                 (1)
        recall = tp / number of inputs of class k                         (2)
        f1 = 2 tp / (denominator of (1) + denominator of (2))             (3)
    """
    num_classes = len(bins.hits)
    count = np.bincount(y, minlength=num_classes)
    claimed = np.bincount(predicted, minlength=num_classes)
    hits = np.bincount(y[y == predicted], minlength=num_classes)
    return {
        "precision": ratio_of_counts(hits, claimed),  # (1)
        "recall": ratio_of_counts(hits, count),  # (2)
        "f1": ratio_of_counts(2 * hits, claimed + count),  # (3)
        "ece": bins.calibration_errors().tolist(),
        "count": count.tolist(),
    }


def ratio_of_counts(part: np.ndarray, whole: np.ndarray) -> list[float]:
    """Returns a ratio for each class, NaN for a ratio of zeros."""
    ratio = np.full(len(whole), np.nan)
    np.divide(part, whole, out=ratio, where=whole > 0)
    return ratio.tolist()


def uncertainty_section(report: Any) -> tuple[str, list]:
    """Returns the title and the rows of the table of the uncertainty."""
    return "Uncertainty in nats, mean", [
        ["entropy (total)", report.entropy],
        ["expected entropy (aleatoric)", report.expected_entropy],
        ["mutual information (epistemic)", report.mutual_information],
    ]


def per_class_section(
    scores: dict[str, list], lowest: str = "f1"
) -> tuple[str, list]:
    """Returns the title and the rows of a table with a row for each class.

    The last list of `scores` is `count`. A long table has the classes with the
    lowest scores of the name `lowest`.
    """
    num_classes = len(scores["count"])
    title, shown = "Classes", list(range(num_classes))
    if num_classes > MOST_ROWS:
        name = _NAMES[lowest]
        title = f"{MOST_ROWS} of {num_classes} classes, those of lowest {name}"
        # NaN, of classes that do not occur, comes last.
        shown = np.argsort(scores[lowest], kind="stable")[:MOST_ROWS].tolist()
    rows = [["class", *(_NAMES.get(name, name) for name in scores)]]
    for k in shown:
        numbers = [scores[name][k] for name in scores if name != "count"]
        rows.append([str(k), *numbers, str(scores["count"][k])])
    return title, rows
