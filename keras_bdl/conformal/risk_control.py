"""Conformal risk control of a bounded monotone loss."""

import math
import warnings
from collections.abc import Callable
from fractions import Fraction
from typing import Any
from typing import Self

import numpy as np

from keras_bdl.aliases import ArrayLike
from keras_bdl.arguments import check_bool
from keras_bdl.arguments import check_number
from keras_bdl.conformal.conformal import check_task
from keras_bdl.conformal.controlled_sets import ControlledSets
from keras_bdl.conformal.cutoff import decimal
from keras_bdl.conformal.label_losses import LabelLosses
from keras_bdl.conformal.label_losses import losses_of
from keras_bdl.conformal.label_losses import name_of
from keras_bdl.conformal.saved_method import SavedMethod
from keras_bdl.data.checked_inputs import probability_blocks
from keras_bdl.prediction import ClassificationPrediction


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
            segmentation. The loss sees them neither in the set nor true.
            Defaults to `None`.

    Example:

    ```python
    control = keras_bdl.conformal.RiskControl().fit(prediction, y, risk=0.1)
    sets = control(keras_bdl.predict(model, x_test))
    sets.membership, sets.evaluate(y_test).loss
    ```

    Reference:
        - [Angelopoulos et al., 2024](https://arxiv.org/abs/2208.02814),
          theorem 1; the paper's lambda is our 1 - t
    """

    risk: float | None = None
    fitted_threshold: float | None = None
    label_shape: tuple | None = None

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

    def fit(
        self,
        prediction: ClassificationPrediction,
        y: ArrayLike | None = None,
        *,
        risk: float = 0.1,
    ) -> Self:
        """Finds the threshold for a risk.

        Args:
            prediction: Prediction for data that were not used in training.
            y: Labels, integers or one-hot, for each label of each example.
                Defaults to `None`, the labels that the prediction found in
                its data.
            risk: Largest allowed expected loss. Defaults to `0.1`.

        Returns:
            This object.
        """
        check_number("risk", risk, above=0.0, below=self.loss_bound)
        check_task("prediction", prediction, "classification")
        _check_probabilities(prediction)
        calibration = LabelLosses(self, prediction, y)
        count = len(prediction.log_mean)
        allowed = decimal(risk) * (count + 1) - decimal(self.loss_bound)
        whole = calibration.at(0.0)
        if whole.max() > risk:
            raise ValueError(
                "The loss of the set of all labels must be at most `risk` for "
                "every example. Change the loss, or raise `risk`. Received: "
                f"risk={risk}, a loss of {whole.max():.4g} of the whole set"
            )
        self.fitted_threshold = _search(calibration, whole, allowed)
        self.risk = float(risk)
        self.label_shape = prediction.log_mean.shape[1:]
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

    def __call__(self, prediction: ClassificationPrediction) -> ControlledSets:
        """Returns the set of labels of each example.

        Args:
            prediction: A prediction of the model that `fit` received. Images
                may have another size: labels on two or more axes.
        """
        self._check_fitted()
        check_task("prediction", prediction, "classification")
        _check_probabilities(prediction)
        self._check_labels(prediction.log_mean.shape[1:])
        return ControlledSets(self, prediction)

    def _check_fitted(self):
        if self.fitted_threshold is None:
            raise RuntimeError(
                "`RiskControl` is not fitted yet. Call `fit(prediction, y)` "
                "with held-out data. Received: no threshold"
            )
        return self.fitted_threshold

    def _check_labels(self, shape):
        """Raises an error unless labels and classes are those of `fit`."""
        fitted = self.label_shape
        space = len(fitted) > 2  # axes of an image may have another length
        if (
            len(shape) != len(fitted)
            or shape[-1] != fitted[-1]
            or not (space or shape == fitted)
        ):
            raise ValueError(
                "`prediction` must have the labels and the classes of `fit`. "
                f"Received: labels of shape {shape[:-1]} with {shape[-1]} "
                f"classes, and of shape {fitted[:-1]} with {fitted[-1]} "
                "classes in `fit`"
            )

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
    def _arguments(cls, config, custom_objects):
        loss = config["loss"]
        return {**config, "loss": custom_objects.get(loss, loss)}

    def _get_fitted(self):
        return {
            "threshold": self.threshold,
            "risk": self.risk,
            "label_shape": list(self.label_shape),
        }

    def _set_fitted(self, fitted):
        self.fitted_threshold = fitted["threshold"]
        self.risk = fitted["risk"]
        self.label_shape = tuple(fitted["label_shape"])


def _search(calibration, whole, allowed):
    """Returns the largest threshold that keeps (1), 0 if none does."""
    losses_low, losses_high = whole, calibration.at(2.0)
    _check_monotone(losses_low, losses_high)
    if _total(whole) > allowed:
        return 0.0
    if _total(losses_high) <= allowed:
        return 2.0  # even empty sets have a low loss
    # `low` keeps (1), and no threshold above `high` does.
    low, high = 0.0, calibration.below
    while low < high:
        middle = _between(low, high)
        losses = calibration.at(middle)
        _check_monotone(losses_low, losses)
        _check_monotone(losses, losses_high)
        if _total(losses) <= allowed:  # (1)
            low, losses_low = calibration.above, losses
        else:
            high, losses_high = calibration.below, losses
    return low


def _between(low, high):
    """Returns the float half-way between two, by count, above the lower."""
    # The bits of floats above zero are integers in the same order.
    first, last = np.array([low, high]).view("int64").tolist()
    return float(np.array(last - (last - first) // 2).view("float64"))


def _check_probabilities(prediction):
    for _ in probability_blocks("prediction", prediction):
        pass  # checks the block


def _total(losses):
    """Returns the sum of losses, never below the exact one."""
    total = Fraction(math.fsum(losses))
    steps = losses * 2.0**20
    if np.all(steps == np.rint(steps)) and abs(total) < 2**32:
        return total  # exact: no loss was rounded, nor was the sum
    # A loss such as 1/3 is rounded, perhaps down.
    return total + Fraction(1e-12) * Fraction(math.fsum(np.abs(losses)))


def _check_monotone(of_larger_set, of_smaller_set):
    # Rounding may change the order of sums.
    if np.any(of_larger_set > of_smaller_set + 1e-9):
        raise ValueError(
            "`loss` must not be larger for a larger set. Conformal risk "
            "control holds for such losses only. Received: a loss that grew "
            f"by {np.max(of_larger_set - of_smaller_set):.4g}"
        )
