"""Sets of labels with a controlled risk, and the report on them."""

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from keras_bdl.aliases import ArrayLike
from keras_bdl.data.checked_inputs import class_labels
from keras_bdl.data.checked_inputs import labels_of
from keras_bdl.prediction import ClassificationPrediction
from keras_bdl.reports.report import Report


class ControlledSets:
    """Sets of labels, one for each example, from `RiskControl`.

    Args:
        method: The fitted method.
        prediction: The prediction.
        membership: Whether each label is in the set.

    Attributes:
        method: The fitted method.
        prediction: The prediction.
        membership: Whether each label is in the set, examples on the first
            axis.

    Example:

    ```python
    sets = keras_bdl.conformal.RiskControl().fit(prediction, y)(prediction)
    sets.membership, sets.sizes
    ```
    """

    def __init__(
        self,
        method: Any,
        prediction: ClassificationPrediction,
        membership: np.ndarray,
    ):
        self.method = method
        self.prediction = prediction
        self.membership = membership

    @property
    def sizes(self) -> np.ndarray:
        """Number of labels in each set."""
        return self.membership.reshape(len(self), -1).sum(1)

    def evaluate(self, y: ArrayLike | None = None) -> "RiskReport":
        """Returns the mean loss and the sizes.

        Args:
            y: Labels, integers or one-hot. Defaults to `None`, the labels
                that the prediction found in its data.
        """
        y = labels_of(self.prediction, y)
        truth = true_labels(self.prediction, y, self.method.presence)
        losses = np.asarray(
            losses_of(self.method.loss)(self.membership, truth), "float64"
        )
        spread = losses.std(ddof=1) if len(losses) > 1 else math.nan
        labels = self.membership.size // len(losses)
        return RiskReport(
            loss_name=self.method.get_config()["loss"],
            num_examples=len(losses),
            risk=self.method.risk,
            loss=float(losses.mean()),
            standard_error=float(spread / math.sqrt(len(losses))),
            mean_size=float(self.sizes.mean()),
            mean_share=float(self.sizes.mean() / labels),
            mean_true=float(truth.sum() / len(losses)),
        )

    def __len__(self) -> int:
        return len(self.membership)

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
    """

    loss_name: str
    num_examples: int
    risk: float
    loss: float
    standard_error: float
    mean_size: float
    mean_share: float
    mean_true: float

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
        ]


def losses_of(loss: str | Callable) -> Callable:
    """Returns a loss function.

    Args:
        loss: Its name, or the function.
    """
    if callable(loss):
        return loss
    if loss not in _LOSSES:
        raise ValueError(
            f"`loss` must be one of {tuple(_LOSSES)} or a function of "
            "`(inside, y)`. For a saved function of your own, pass "
            "`custom_objects` to `keras_bdl.conformal.load`. "
            f"Received: loss={loss!r}"
        )
    return _LOSSES[loss]


def class_probabilities(
    prediction: ClassificationPrediction, presence: bool
) -> np.ndarray:
    """Returns the probability of each label that a set may hold.

    Args:
        prediction: The prediction.
        presence: Whether two classes mean absent and present.
    """
    log_mean = prediction.log_mean
    if presence and log_mean.shape[-1] == 2:
        log_mean = log_mean[..., 1]
    if log_mean.dtype.itemsize < 4:
        log_mean = log_mean.astype("float32")
    return np.exp(log_mean)


def true_labels(
    prediction: ClassificationPrediction, y: ArrayLike, presence: bool
) -> np.ndarray:
    """Returns whether each label that a set may hold is true.

    Args:
        prediction: The prediction.
        y: Labels, integers or one-hot.
        presence: Whether two classes mean absent and present.
    """
    shape = prediction.log_mean.shape
    y = class_labels(y, shape).reshape(shape[:-1])
    if presence and shape[-1] == 2:
        return y == 1
    return y[..., None] == np.arange(shape[-1])


def _missed(inside, y):
    missed = (y & ~inside).reshape(len(y), -1).sum(1)
    return missed, y.reshape(len(y), -1).sum(1)


def _false_negative_rate(inside, y):
    missed, true = _missed(inside, y)
    return missed / np.maximum(true, 1)


def _miscoverage(inside, y):
    return (_missed(inside, y)[0] > 0).astype("float64")


_LOSSES = {
    "false_negative_rate": _false_negative_rate,
    "miscoverage": _miscoverage,
}
