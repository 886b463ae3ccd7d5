"""Conformal risk control of a bounded monotone loss."""

import dataclasses
import math
import warnings
from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Mapping
from fractions import Fraction
from typing import Any
from typing import Self

import numpy as np

from keras_bdl._aliases import ArrayLike
from keras_bdl._arguments import check_bool
from keras_bdl._arguments import check_number
from keras_bdl._data._checked_inputs import probability_blocks
from keras_bdl._memory import check_memory
from keras_bdl._reports import Report
from keras_bdl.conformal._conformal import SavedMethod
from keras_bdl.conformal._conformal import check_task
from keras_bdl.conformal._conformal import decimal
from keras_bdl.conformal._coverage_report import groups_by_size
from keras_bdl.conformal._label_losses import LabelLosses
from keras_bdl.conformal._label_losses import LossSums
from keras_bdl.conformal._label_losses import counted_labels
from keras_bdl.conformal._label_losses import label_blocks
from keras_bdl.conformal._label_losses import losses_of
from keras_bdl.conformal._label_losses import name_of
from keras_bdl.conformal._label_losses import present_only
from keras_bdl.conformal._label_losses import search_threshold
from keras_bdl.prediction import ClassificationPrediction
from keras_bdl.prediction._predictions import counted_entries


class RiskControl(SavedMethod):
    """Sets of labels whose expected loss is below a bound.

    Use this method for several labels per example: segmentation, multi-label
    classification. With p the predictive probabilities, L_i(t) the loss of
    calibration example i with the set {labels with p >= t}, and B the largest
    possible loss,

        t = the largest threshold with
            (L_1(t) + ... + L_n(t) + B) / (n + 1) <= risk                 (1)

    With exchangeable data, the expected loss of a new example is at most
    `risk`. The expectation is over calibration and new data; for one
    calibration set, the mean loss may be somewhat larger. `fit` compares the
    set of every distinct probability, not those of a grid. It reads the
    prediction in blocks of examples, and keeps one loss of each. The sum in
    (1) is exact if all losses are multiples of 2^-20, such as 0, 1/2 and 1.
    Otherwise a trillionth is added, 10^-12 of the sum of their sizes, so that
    a rounded loss such as 1/3 never lets a threshold pass that is too large.

    If the calibration data are larger than the memory, `add` batches of them,
    and call `fit` without a prediction. The threshold is then the largest one
    of a grid, whose odds t/(1 - t) grow in steps of 0.5 %. The bound holds as
    before.

    Two classes mean that a label is absent or present, and sets hold present
    labels: the shape of the sets is that of the labels. With more classes, the
    sets hold pairs of a label and a class, on a last axis of classes.

    Args:
        loss: `"false_negative_rate"`, the share of the true labels outside the
            set; `"miscoverage"`, 1 if any true label is outside; or a function
            of `(inside, y)`, two boolean arrays with some of the examples on
            the first axis, that returns one loss for each example. A larger
            set must not have a larger loss. Defaults to
            `"false_negative_rate"`.
        loss_bound: B. Defaults to `1.0`.
        presence: Whether two classes mean absent and present. Otherwise sets
            hold both classes like any others. Defaults to `True`.
        ignore_class: Label of positions that do not count, such as 255 in
            segmentation. The loss sees them neither in the set nor true, like
            padding. Defaults to `None`: the label that the compiled loss
            ignores, if any.

    Example:

    ```python
    control = keras_bdl.conformal.RiskControl().fit(prediction, y, risk=0.1)
    sets = control(keras_bdl.predict(model, x_test))
    sets.membership, sets.evaluate(y_test).loss
    ```

    Batch by batch, for images that do not fit into memory:

    ```python
    control = keras_bdl.conformal.RiskControl()
    keras_bdl.predict(segmenter, labelled_images, on_batch=control.add)
    control.fit(risk=0.1).threshold
    ```

    Reference:
        - [Angelopoulos et al., 2024](https://arxiv.org/abs/2208.02814),
          theorem 1; the paper's lambda is our 1 - t
    """

    risk: float | None = None
    fitted_threshold: float | None = None
    label_shape: Any = None

    def __init__(
        self,
        loss: str | Callable = "false_negative_rate",
        *,
        loss_bound: float = 1.0,
        presence: bool = True,
        ignore_class: int | None = None,
    ):
        losses_of(loss)
        if ignore_class is not None:
            check_number("ignore_class", ignore_class, integer=True)
        self.ignore_class = ignore_class
        self.loss = loss
        self.loss_bound = check_number("loss_bound", loss_bound, above=0.0)
        self.presence = check_bool("presence", presence)
        self._sums = LossSums()
        self._added_shape: tuple | None = None

    def add(
        self, prediction: ClassificationPrediction, y: ArrayLike | None = None
    ) -> None:
        """Adds a batch of calibration data for a `fit` without a prediction.

        A few numbers are kept, whatever the number of batches. `save` does not
        write them.

        Args:
            prediction: Prediction for data that were not used in training.
            y: Labels, as for `fit`. Defaults to `None`, the labels that the
                prediction found in its data.
        """
        check_task("prediction", prediction, "classification")
        if callable(self.loss):
            raise ValueError(
                "`loss` must be a name for `add`, because a function would run "
                "once for each threshold. Call `fit` with one prediction, "
                "whose `log_mean` may be a memory map. "
                f"Received: loss={name_of(self.loss)}"
            )
        _check_probabilities(prediction)
        shape = prediction.log_mean.shape[1:]
        if self._added_shape is not None:
            _check_shapes(shape, self._added_shape, "of the batches before")
        losses = LabelLosses(self, prediction, y)
        losses.at(2.0)  # checks the largest losses
        self._sums.add(losses)
        self._added_shape = shape

    def fit(
        self,
        prediction: ClassificationPrediction | None = None,
        y: ArrayLike | None = None,
        *,
        risk: float = 0.1,
    ) -> Self:
        """Finds the threshold for a risk.

        Args:
            prediction: Prediction for data that were not used in training.
                Defaults to `None`, all batches that `add` received.
            y: Labels, integers or one-hot, for each label of each example.
                Defaults to `None`, the labels that the prediction found in
                its data.
            risk: Largest allowed expected loss. Defaults to `0.1`.

        Returns:
            This object.
        """
        check_number("risk", risk, above=0.0, below=self.loss_bound)
        if prediction is None:
            shape, count = self._checked_added(y), self._sums.count
            allowed = self._allowed(risk, count)
            threshold = self._sums.largest_threshold(allowed)
        else:
            check_task("prediction", prediction, "classification")
            _check_probabilities(prediction)
            count, *labels = prediction.log_mean.shape
            shape = tuple(labels)
            allowed = self._allowed(risk, count)
            threshold = self._search(prediction, y, risk, allowed)
        self.fitted_threshold = threshold
        self.risk = float(risk)
        self.label_shape = shape
        if allowed < 0:
            least = -(-decimal(self.loss_bound) // decimal(risk)) - 1
            warnings.warn(
                f"Risk {risk:g} is only kept by the set of all labels: "
                f"{count} calibration examples are fewer than the {least} "
                "that are needed.",
                stacklevel=2,
            )
        return self

    @property
    def threshold(self) -> float:
        """The threshold t: a set holds the labels with p >= t."""
        return self._check_fitted()

    def __call__(
        self, prediction: ClassificationPrediction
    ) -> "ControlledSets":
        """Returns the set of labels of each example.

        Args:
            prediction: A prediction of the model that `fit` received. Images
                may have another size: labels on two or more axes.
        """
        self._check_fitted()
        check_task("prediction", prediction, "classification")
        _check_probabilities(prediction)
        shape = prediction.log_mean.shape[1:]
        _check_shapes(shape, self.label_shape, "of `fit`")
        return ControlledSets(self, prediction)

    def _check_fitted(self) -> float:
        if self.fitted_threshold is None:
            raise RuntimeError(
                "`RiskControl` is not fitted yet. Call `fit(prediction, y)` "
                "with held-out data. Received: no threshold"
            )
        return self.fitted_threshold

    def _allowed(self, risk: float, count: int) -> Fraction:
        """Returns the largest sum of losses that (1) allows."""
        return decimal(risk) * (count + 1) - decimal(self.loss_bound)

    def _search(
        self,
        prediction: ClassificationPrediction,
        y: ArrayLike | None,
        risk: float,
        allowed: Fraction,
    ) -> float:
        calibration = LabelLosses(self, prediction, y)
        whole = calibration.at(0.0)
        if whole.max() > risk:
            raise ValueError(
                "The loss of the set of all labels must be at most `risk` for "
                "every example. Change the loss, or raise `risk`. Received: "
                f"risk={risk}, a loss of {whole.max():.4g} of the whole set"
            )
        return search_threshold(calibration, whole, allowed)  # (1)

    def _checked_added(self, y: ArrayLike | None) -> tuple:
        """Returns the shape of the labels in the batches of `add`."""
        if self._added_shape is None or y is not None:
            raise ValueError(
                "`prediction` must be given to `fit`, with its labels, or "
                "batches with their labels to `add` before. Received: "
                f"{self._sums.count} examples in batches, and "
                f"{'no y' if y is None else 'y without a prediction'}"
            )
        return self._added_shape

    def get_config(self) -> dict[str, Any]:
        """Returns every constructor argument, a function by its name."""
        return {**super().get_config(), "loss": name_of(self.loss)}

    def get_state(self) -> dict[str, Any]:
        """Returns the content of a saved file as nested dicts and arrays."""
        name = getattr(self.loss, "__name__", "")
        if callable(self.loss) and not name.isidentifier():
            raise ValueError(
                "`loss` must be a function with a name to be saved, so that "
                "`keras_bdl.conformal.load` can find it in `custom_objects`. "
                f"Define it with `def`. Received: loss={self.loss!r}"
            )
        return super().get_state()

    @classmethod
    def _arguments(
        cls, config: dict[str, Any], custom_objects: Mapping[str, Any]
    ) -> dict[str, Any]:
        loss = config["loss"]
        return {**config, "loss": custom_objects.get(loss, loss)}

    def _get_fitted(self) -> dict[str, Any]:
        return {
            "threshold": self.threshold,
            "risk": self.risk,
            "label_shape": list(self.label_shape),
        }

    def _set_fitted(self, fitted: dict[str, Any]) -> None:
        self.fitted_threshold = fitted["threshold"]
        self.risk = fitted["risk"]
        self.label_shape = tuple(fitted["label_shape"])


def _check_probabilities(prediction: ClassificationPrediction) -> None:
    if prediction.mask is not None:
        prediction = counted_entries(prediction).prediction
    for _ in probability_blocks("prediction", prediction):
        pass  # checks the block


def _check_shapes(shape: tuple, known: tuple, source: str) -> None:
    """Raises an error unless labels and classes are those known before."""
    space = len(known) > 2  # axes of an image may have another length
    if (
        len(shape) != len(known)
        or shape[-1] != known[-1]
        or not (space or shape == known)
    ):
        raise ValueError(
            f"`prediction` must have the labels and the classes {source}. "
            f"Received: labels of shape {shape[:-1]} with {shape[-1]} "
            f"classes, and of shape {known[:-1]} with {known[-1]} "
            f"classes {source.removeprefix('of ')}"
        )


class ControlledSets:
    """Sets of labels, one for each example, from `RiskControl`.

    The sets are computed when they are read, in blocks of examples. Padding is
    in no set.

    Attributes:
        method: The fitted method.
        prediction: The prediction.
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


def _mean_loss(losses: np.ndarray) -> dict[str, float]:
    spread = losses.std(ddof=1) if len(losses) > 1 else math.nan
    return {
        "loss": float(losses.mean()),
        "standard_error": float(spread / math.sqrt(len(losses))),
    }
