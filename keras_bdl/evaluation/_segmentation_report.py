"""Report on the predictions of a classifier of pixels."""

import dataclasses
from typing import ClassVar

from keras_bdl._reports._per_example import PerExample
from keras_bdl._reports._report import NOT_A_NUMBER
from keras_bdl._reports._report import Report
from keras_bdl.evaluation._class_bins import per_class_section


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
            (
                "Uncertainty in nats, mean",
                [
                    ["entropy (total)", self.entropy],
                    ["expected entropy (aleatoric)", self.expected_entropy],
                    ["mutual information (epistemic)", self.mutual_information],
                ],
            ),
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
