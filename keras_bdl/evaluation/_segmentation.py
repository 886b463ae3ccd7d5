"""Scores of a segmentation, added up batch by batch."""

import dataclasses
import zlib
from collections.abc import Sequence
from typing import Any
from typing import ClassVar

import numpy as np

from keras_bdl._aliases import ArrayLike
from keras_bdl._arguments import check_choice
from keras_bdl._arguments import check_count
from keras_bdl._arguments import check_number
from keras_bdl._data._checked_inputs import check_classification
from keras_bdl._data._checked_inputs import kept_labels
from keras_bdl._data._checked_inputs import labels_of
from keras_bdl._reports import NOT_A_NUMBER
from keras_bdl._reports import PerExample
from keras_bdl._reports import Report
from keras_bdl.evaluation._calibration import ClassBins
from keras_bdl.evaluation._classification_report import ExampleScores
from keras_bdl.evaluation._classification_report import per_class_section
from keras_bdl.evaluation._classification_report import ratio_of_counts
from keras_bdl.evaluation._classification_report import uncertainty_section
from keras_bdl.evaluation._ranking import FRACTIONS
from keras_bdl.evaluation._ranking import MEASURES
from keras_bdl.evaluation._ranking import checked_fractions
from keras_bdl.evaluation._ranking import kept_weights
from keras_bdl.evaluation._ranking import uncertainty_of
from keras_bdl.prediction import ClassificationPrediction


class SegmentationScores:
    """Adds up the scores of a classifier of pixels, batch by batch.

    Use it for images, volumes or sequences with a label at each position. Their
    predictions may be larger than the memory: of each image, only a few numbers
    for each class and bin are kept.

    Args:
        ignore_class: Label of pixels that do not count. It may be no class,
            such as 255 or -1, if labels are integers. Defaults to `None`: the
            label that the compiled loss ignores, if any.
        num_bins: Number of bins of the calibration errors. Defaults to `20`.
        fractions: Fractions of the images that are referred to an expert.
            Defaults to `(0.0, 0.1, 0.2, 0.3)`.
        uncertainty: Measure whose mean over the pixels selects the referred
            images, as in `keras_bdl.evaluate`. Defaults to
            `"mutual_information"`.

    Example:

    ```python
    scores = keras_bdl.evaluation.SegmentationScores()
    keras_bdl.predict(segmenter, labelled_images, on_batch=scores.add)
    print(scores.report())
    ```
    """

    def __init__(
        self,
        *,
        ignore_class: int | None = None,
        num_bins: int = 20,
        fractions: Sequence[float] = FRACTIONS,
        uncertainty: str = "mutual_information",
    ):
        if ignore_class is not None:
            check_number("ignore_class", ignore_class, integer=True)
        self.ignore_class = ignore_class
        self.num_bins = check_count("num_bins", num_bins)
        self.fractions = checked_fractions(fractions)
        self.uncertainty = check_choice("uncertainty", uncertainty, MEASURES)
        self._class_bins: Any = None
        self._num_samples = 0
        self._sums = dict.fromkeys(
            ("pixels", "correct", "nll", "brier", "entropy", "expected"), 0.0
        )
        self._images: list[tuple] = []
        self._image_sums: list[np.ndarray] = []  # nll, brier, gap of each bin
        self._checksum = 0

    def add(
        self, prediction: ClassificationPrediction, y: ArrayLike | None = None
    ) -> None:
        """Adds a batch of images.

        Args:
            prediction: A `ClassificationPrediction` with the images on the
                first axis, and at least one axis of positions.
            y: Labels: integers without the axis of classes, or one-hot.
                Defaults to `None`, the labels in the prediction.
        """
        check_classification("prediction", prediction)
        shape = prediction.log_mean.shape
        if len(shape) < 3:
            raise ValueError(
                "`prediction` must have a class at each position, in the shape "
                "(images, positions..., classes). Use `keras_bdl.evaluate` for "
                f"one class each. Received: a prediction of shape {shape}"
            )
        self._check_classes(shape[-1], prediction.num_samples)
        y = labels_of(prediction, y)
        ignored = self.ignore_class, prediction.ignore_class
        labels, kept = kept_labels(y, shape, ignored, prediction.mask)
        self._measure, values = uncertainty_of(prediction, self.uncertainty)
        # One row for each pixel that counts.
        rows = prediction.log_mean.reshape(-1, shape[-1])[kept]
        if not len(rows):
            return
        labels = labels[kept]
        scores = ExampleScores.of(
            "prediction",
            ClassificationPrediction(rows),
            labels,
            bins=self._class_bins,
        )
        for name, total in {
            "pixels": len(rows),
            "correct": scores.correct.sum(),
            "nll": scores.nll.sum(),
            "brier": scores.brier.sum(),
            "entropy": prediction.entropy.ravel()[kept].sum(dtype="float64"),
            "expected": prediction.expected_entropy.ravel()[kept].sum(
                dtype="float64"
            ),
        }.items():
            self._sums[name] += float(total)
        image = np.repeat(np.arange(shape[0]), kept.size // shape[0])[kept]
        self._add_images(image, values[kept], scores)

    def report(self) -> "SegmentationReport":
        """Returns the report on everything that was added."""
        if not self._images:
            raise ValueError(
                "`SegmentationScores` needs pixels that count. Call `add`, or "
                "pass it to `keras_bdl.predict` as `on_batch`. "
                f"Received: ignore_class={self.ignore_class} and no pixel"
            )
        n = self._sums["pixels"]
        several = self._num_samples > 1
        expected = self._sums["expected"] / n if several else np.nan
        entropy = self._sums["entropy"] / n
        hits, claimed, count = self._of_images([1.0] * len(self._images))
        errors = self._class_bins.calibration_errors()
        return SegmentationReport(
            num_images=len(self._images),
            num_pixels=int(n),
            num_classes=len(count),
            num_samples=self._num_samples,
            accuracy=self._sums["correct"] / n,
            mean_iou=_mean_iou(hits, claimed, count),
            nll=self._sums["nll"] / n,
            brier=self._sums["brier"] / n,
            num_bins=self.num_bins,
            ece=float(np.abs(np.sum(self._image_sums, 0)[2:]).sum() / n),
            ece_classwise=float(errors.mean()),
            entropy=entropy,
            expected_entropy=expected,
            mutual_information=entropy - expected,
            referral=self._referral(),
            per_class={
                "iou": ratio_of_counts(hits, claimed + count - hits),
                "precision": ratio_of_counts(hits, claimed),
                "recall": ratio_of_counts(hits, count),
                "ece": errors.tolist(),
                "count": count.astype(int).tolist(),
            },
            per_example=self._per_example(),
        )

    def _check_classes(self, classes: int, samples: int) -> None:
        if self._class_bins is None:
            self._class_bins = ClassBins(classes, self.num_bins)
            self._num_samples = samples
        known = len(self._class_bins.hits), self._num_samples
        if known != (classes, samples):
            raise ValueError(
                "`prediction` must have the classes and the number of samples "
                "of the batches before. Use new `SegmentationScores` for "
                f"another model. Received: {classes} classes and {samples} "
                f"samples after {known[0]} classes and {known[1]} samples"
            )

    def _add_images(
        self, image: np.ndarray, uncertainty: np.ndarray, scores: ExampleScores
    ) -> None:
        classes = len(self._class_bins.hits)
        self._checksum = zlib.crc32(scores.y.tobytes(), self._checksum)
        gaps, bins = scores.gaps(self.num_bins).T
        bins = bins.astype(int)
        # The pixels of an image are neighbours.
        _, starts = np.unique(image, return_index=True)
        for here in map(slice, starts, [*starts[1:], len(image)]):
            y, p = scores.y[here], scores.predicted[here]
            counts = [
                np.bincount(values, minlength=classes)
                for values in (y[y == p], p, y)
            ]
            self._images.append((uncertainty[here].mean(), *counts))
            sums = scores.nll[here].sum(), scores.brier[here].sum()
            of_bins = np.bincount(bins[here], gaps[here], self.num_bins)
            self._image_sums.append(np.array([*sums, *of_bins]))

    def _per_example(self) -> PerExample:
        """Returns the numbers of each image whose means give the scores."""
        _, *counts = zip(*self._images, strict=True)
        hits, claimed, true = map(np.array, counts)
        nll, brier, *gaps = np.transpose(self._image_sums)
        pixels = true.sum(1)
        ratios = {"accuracy": hits.sum(1), "nll": nll, "brier": brier}
        return PerExample.of(
            self._checksum,
            formulas={
                **dict.fromkeys(ratios, "ratio"),
                "ece": "summed gaps",
                "mean_iou": "iou",
            },
            ece=np.stack([*gaps, pixels], 1),
            mean_iou=np.concatenate([hits, claimed, true], 1),
            **{k: np.stack([v, pixels], 1) for k, v in ratios.items()},
        )

    def _of_images(self, weights: Any) -> list[np.ndarray]:
        """Returns weighted sums: hits, claimed and true pixels by class."""
        _, *counts = zip(*self._images, strict=True)
        return [np.tensordot(weights, np.array(c), 1) for c in counts]

    def _referral(self) -> dict[str, Any]:
        uncertainty = [image[0] for image in self._images]
        accuracy, ious = [], []
        for fraction in self.fractions:
            weights = kept_weights(uncertainty, fraction)
            hits, claimed, count = self._of_images(weights)
            accuracy.append(float(hits.sum() / count.sum()))
            ious.append(_mean_iou(hits, claimed, count))
        return {
            "uncertainty": self._measure,
            "fractions": self.fractions,
            "accuracy": accuracy,
            "mean_iou": ious,
        }


def _mean_iou(
    hits: np.ndarray, claimed: np.ndarray, count: np.ndarray
) -> float:
    return float(np.nanmean(ratio_of_counts(hits, claimed + count - hits)))


@dataclasses.dataclass(frozen=True)
class SegmentationReport(Report):
    """Scores of a classifier of pixels, from `SegmentationScores`.

    With the pixels of all images together, and for class k `tp` the number of
    its pixels that were classified as k,

        iou = tp / (pixels classified as k + pixels of class k - tp)      (1)

    Attributes:
        num_images: Number of images with a pixel that counts.
        num_pixels: Number of pixels that count.
        num_classes: Number of classes.
        num_samples: Number of posterior samples in the average.
        accuracy: Fraction of pixels whose most probable class is correct.
        mean_iou: Mean of (1) over all classes that occur.
        nll: Mean negative log probability of the label.
        brier: Brier score, summed over the classes.
        num_bins: Number of bins of the calibration errors.
        ece: Expected calibration error of the pixels, bins of equal width.
        ece_classwise: Mean calibration error of the probability of each class.
        entropy: Mean predictive entropy of a pixel in nats.
        expected_entropy: Mean aleatoric part of the entropy, NaN for a single
            sample.
        mutual_information: Mean epistemic part of the entropy, NaN for a single
            sample.
        referral: Dict with the `uncertainty` used, the referred `fractions` of
            the images, and `accuracy` and `mean_iou` of the remaining images.
        per_class: Dict of lists with one entry for each class: `iou`,
            `precision`, `recall`, `ece` and `count`, the number of pixels. A
            ratio of zeros is NaN.
        per_example: `PerExample` with numbers of single images, for
            `keras_bdl.evaluation.table`. Not a part of `to_dict`.
    """

    TABLE_SCORES: ClassVar = ("accuracy", "mean_iou", "nll", "brier", "ece")

    num_images: int
    num_pixels: int
    num_classes: int
    num_samples: int
    accuracy: float
    mean_iou: float
    nll: float
    brier: float
    num_bins: int
    ece: float
    ece_classwise: float
    entropy: float
    expected_entropy: float
    mutual_information: float
    referral: dict
    per_class: dict
    per_example: PerExample = dataclasses.field(
        repr=False, compare=False, metadata=NOT_A_NUMBER
    )

    def title(self) -> str:
        """Returns the first line of the printed report."""
        return (
            f"Segmentation of {self.num_images} images into "
            f"{self.num_classes} classes, {self.num_pixels} pixels, "
            f"{self.num_samples} posterior "
            f"{'sample' if self.num_samples == 1 else 'samples'}"
        )

    def sections(self) -> list[tuple]:
        """Returns a pair of title and rows for each table."""
        curve = self.referral
        measure = curve["uncertainty"].replace("_", " ")
        return [
            (
                "Quality",
                [
                    ["accuracy", self.accuracy],
                    ["mean IoU", self.mean_iou],
                    ["negative log-likelihood", self.nll],
                    ["Brier score", self.brier],
                ],
            ),
            (
                f"Calibration, {self.num_bins} bins",
                [
                    ["ECE, equal width", self.ece],
                    ["ECE, classwise", self.ece_classwise],
                ],
            ),
            uncertainty_section(self),
            (
                f"Referral of the most uncertain images, by mean {measure}",
                [
                    [
                        "referred",
                        *(f"{100 * f:g} %" for f in curve["fractions"]),
                    ],
                    ["accuracy", *curve["accuracy"]],
                    ["mean IoU", *curve["mean_iou"]],
                ],
            ),
            per_class_section(self.per_class, lowest="iou"),
        ]
