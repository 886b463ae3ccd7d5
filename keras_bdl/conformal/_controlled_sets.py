"""Sets of labels with a controlled risk, and the report on them."""

import dataclasses
import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from keras_bdl._aliases import ArrayLike
from keras_bdl._memory import check_memory
from keras_bdl._reports._report import Report
from keras_bdl.conformal._coverage_report import groups_by_size
from keras_bdl.conformal._label_losses import LabelLosses
from keras_bdl.conformal._label_losses import counted_labels
from keras_bdl.conformal._label_losses import label_blocks
from keras_bdl.conformal._label_losses import name_of
from keras_bdl.conformal._label_losses import present_only
from keras_bdl.prediction import ClassificationPrediction


class ControlledSets:
    """Sets of labels, one for each example, from `RiskControl`.

    The sets are computed when they are read, in blocks of examples. Padding is
    in no set.

    Args:
        method: The fitted method.
        prediction: The prediction.

    Attributes:
        method: The fitted method.
        prediction: The prediction.

    Example:

    ```python
    sets = keras_bdl.conformal.RiskControl().fit(prediction, y)(prediction)
    sets.membership, sets.sizes
    ```
    """

    def __init__(self, method: Any, prediction: ClassificationPrediction):
        self.method = method
        self.prediction = prediction
        self._sizes: np.ndarray | None = None

    @property
    def membership(self) -> np.ndarray:
        """Whether each label is in the set, examples on the first axis."""
        shape = self.prediction.log_mean.shape
        if present_only(shape, self.method.presence):
            shape = shape[:-1]
        check_memory(
            "The membership of all sets",
            math.prod(shape),
            "Read `blocks()`, which yields some examples at a time.",
        )
        whole = np.empty(shape, bool)
        for rows, inside in self.blocks():
            whole[rows] = inside
        return whole

    @property
    def sizes(self) -> np.ndarray:
        """Number of labels in each set."""
        if self._sizes is None:
            sizes = np.empty(len(self), "int64")
            for rows, inside in self.blocks():
                sizes[rows] = inside.reshape(len(inside), -1).sum(1)
            self._sizes = sizes
        return self._sizes

    def blocks(self) -> Iterator[tuple[slice, np.ndarray]]:
        """Yields slices of examples, and `membership` of these examples."""
        threshold = np.float64(self.method.threshold)
        presence = self.method.presence
        for rows, probs in label_blocks(self.prediction, presence):
            inside = probs >= threshold
            yield (
                rows,
                counted_labels(inside, rows, self.prediction, presence),
            )

    def evaluate(self, y: ArrayLike | None = None) -> "RiskReport":
        """Returns the mean loss and the sizes.

        Padding and ignored labels do not count.

        Args:
            y: Labels, integers or one-hot. Defaults to `None`, the labels
                that the prediction found in its data.
        """
        found = LabelLosses(self.method, self.prediction, y)
        losses = found.at(self.method.threshold)
        sizes, total = found.sizes(self.method.threshold)
        return RiskReport(
            loss_name=name_of(self.method.loss),
            num_examples=len(losses),
            risk=self.method.risk,
            **_mean_loss(losses),
            mean_size=float(sizes.mean()),
            mean_share=float(sizes.sum() / max(total, 1)),
            mean_true=found.num_true / len(losses),
            by_size={
                name: {"count": int(chosen.sum()), **_mean_loss(losses[chosen])}
                for name, chosen in groups_by_size(sizes)
            },
        )

    def __len__(self) -> int:
        return len(self.prediction.log_mean)

    def __repr__(self) -> str:
        return f"ControlledSets({len(self)} sets by {self.method!r})"


@dataclasses.dataclass(frozen=True)
class RiskReport(Report):
    """Loss and sizes of sets with a controlled risk.

    Attributes:
        loss_name: Name of the loss.
        num_examples: Number of examples.
        risk: The largest allowed expected loss.
        loss: Mean loss of the examples.
        standard_error: Standard error of `loss`, for these examples.
        mean_size: Mean number of labels in a set.
        mean_share: Mean share of all labels in a set.
        mean_true: Mean number of true labels.
        by_size: A dictionary from each range of sizes to `count`, `loss` and
            `standard_error` of its examples.
    """

    loss_name: str
    num_examples: int
    risk: float
    loss: float
    standard_error: float
    mean_size: float
    mean_share: float
    mean_true: float
    by_size: dict

    def title(self) -> str:
        """Returns the first line of the printed report."""
        return f"RiskControl: {self.num_examples} examples"

    def sections(self) -> list[tuple]:
        """Returns a pair of title and rows for each table."""
        return [
            (
                f"Loss: {self.loss_name}",
                [
                    ["largest expected loss", self.risk],
                    ["mean loss", self.loss],
                    ["standard error", self.standard_error],
                ],
            ),
            (
                "Sets",
                [
                    ["mean size", self.mean_size],
                    ["mean share of all labels", self.mean_share],
                    ["mean number of true labels", self.mean_true],
                ],
            ),
            (
                "By size: count, mean loss, standard error",
                [
                    [
                        size,
                        str(group["count"]),
                        group["loss"],
                        group["standard_error"],
                    ]
                    for size, group in self.by_size.items()
                ],
            ),
        ]


def _mean_loss(losses):
    spread = losses.std(ddof=1) if len(losses) > 1 else math.nan
    return {
        "loss": float(losses.mean()),
        "standard_error": float(spread / math.sqrt(len(losses))),
    }
