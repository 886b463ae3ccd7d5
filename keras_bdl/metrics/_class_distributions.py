"""Base of classification metrics: labels and outputs as distributions.

A metric runs inside a compiled step and cannot raise errors there. An invalid
distribution over the classes (a label out of range, a row of logits declared
as probabilities, NaN) becomes a row of NaN. The metric then shows NaN instead
of a number that looks right.
"""

from typing import Any

from keras import ops

from keras_bdl._arguments import check_choice
from keras_bdl._inherited_arguments import InheritedArguments

# Allows for the rounding of a sum over a thousand classes in half precision.
SUM_TOLERANCE = 2e-2


def probabilities(y_pred: Any, from_logits: bool, dtype: str) -> Any:
    """Returns probabilities of at least two classes on the last axis.

    A last axis of size 1 holds the probability, or the logit, of class 1.

    Args:
        y_pred: Outputs of a classifier.
        from_logits: Whether the outputs are logits.
        dtype: Dtype of the result.
    """
    if from_logits:
        return ops.exp(log_probabilities(y_pred, from_logits, dtype))
    y_pred = ops.cast(y_pred, dtype)
    if y_pred.shape[-1] == 1:
        y_pred = ops.concatenate([1.0 - y_pred, y_pred], axis=-1)
    return _nan_unless_distribution(y_pred)


def log_probabilities(y_pred: Any, from_logits: bool, dtype: str) -> Any:
    """Returns the logarithm of `probabilities`, exact for logits.

    Args:
        y_pred: Outputs of a classifier.
        from_logits: Whether the outputs are logits.
        dtype: Dtype of the result.
    """
    if not from_logits:
        return ops.log(probabilities(y_pred, from_logits, dtype))
    y_pred = ops.cast(y_pred, dtype)
    if y_pred.shape[-1] == 1:
        return ops.log_sigmoid(ops.concatenate([-y_pred, y_pred], axis=-1))
    return ops.log_softmax(y_pred, axis=-1)


def label_distribution(y_true: Any, probs: Any) -> Any:
    """Returns labels as a distribution over classes for each example.

    Args:
        y_true: Integers of shape `(...)` or `(..., 1)`, or one row of
            probabilities per example, `(..., classes)`.
        probs: Result of `probabilities` or its logarithm, `(..., classes)`.
    """
    y_true = ops.cast(y_true, probs.dtype)
    classes, rank = probs.shape[-1], len(probs.shape)
    if len(y_true.shape) == rank - 1:
        y_true = ops.expand_dims(y_true, -1)
    if len(y_true.shape) != rank or y_true.shape[-1] not in (1, classes):
        raise ValueError(
            "`y_true` must hold one integer or one row of "
            f"{classes} class probabilities per example, for an output of "
            f"shape {tuple(probs.shape)}. Received: y_true of shape "
            f"{tuple(y_true.shape)}"
        )
    if y_true.shape[-1] == 1:
        one_hot = ops.equal(y_true, ops.arange(classes, dtype=y_true.dtype))
        y_true = ops.cast(one_hot, y_true.dtype)
    return _nan_unless_distribution(y_true)


def _nan_unless_distribution(rows):
    """Returns rows, with NaN for a negative entry or a sum other than 1."""
    error = ops.abs(ops.sum(rows, axis=-1, keepdims=True) - 1.0)
    lowest = ops.min(rows, axis=-1, keepdims=True)
    valid = ops.logical_and(error < SUM_TOLERANCE, lowest >= 0.0)
    return ops.where(valid, rows, float("nan"))


def example_weights(sample_weight: Any, values: Any) -> Any:
    """Returns sample weights, broadcast to the shape of `values`.

    Args:
        sample_weight: Weight of each example, or `None` for ones.
        values: One value for each example.
    """
    if sample_weight is None:
        return ops.ones_like(values)
    weight = ops.cast(sample_weight, values.dtype)
    rank = len(values.shape)
    if len(weight.shape) == rank + 1 and weight.shape[-1] == 1:
        weight = ops.squeeze(weight, -1)
    while len(weight.shape) < rank:
        weight = ops.expand_dims(weight, -1)
    return ops.broadcast_to(weight, ops.shape(values))


class ClassificationMetric(InheritedArguments):
    """Mixin for metrics of class probabilities.

    Args:
        from_logits: Whether the outputs are logits instead of probabilities.
            Defaults to `None`: a `keras_bdl.Model` takes the answer from its
            compiled cross-entropy. Other models need `True` or `False`.
        name: Name of the metric. Defaults to `None`, the name of the class in
            snake case.
        dtype: Dtype of the computation. Defaults to `None`,
            `keras.config.floatx()`.
    """

    default_name: str
    _of_loss: bool | None = None

    def __init__(
        self,
        *,
        from_logits: bool | None = None,
        name: str | None = None,
        dtype: str | None = None,
    ):
        # The next base class is a Keras metric, which takes these arguments.
        super().__init__(  # type: ignore[call-arg]
            name=name or self.default_name, dtype=dtype
        )
        check_choice("from_logits", from_logits, (None, True, False))
        self.from_logits = from_logits

    def learn(self, likelihood: Any) -> None:
        """Stores whether the compiled loss takes logits.

        Args:
            likelihood: A `Likelihood` with `task` and `from_logits`, or
                `None` for an unknown loss.
        """
        if likelihood is None or likelihood.task == "regression":
            self._of_loss = None
            return
        self._of_loss = likelihood.from_logits
        if self.from_logits not in (None, self._of_loss):
            raise ValueError(
                f"`from_logits` of `{type(self).__name__}` must agree with the "
                "compiled loss. Leave out `from_logits`. Received: "
                f"from_logits={self.from_logits}, and a loss with "
                f"from_logits={self._of_loss}"
            )

    def outputs_are_logits(self) -> bool:
        """Returns whether outputs are logits, or raises an error if unknown."""
        known = self._of_loss if self.from_logits is None else self.from_logits
        if known is None:
            name = type(self).__name__
            raise ValueError(
                "`from_logits` must be given, unless a `keras_bdl.Model` is "
                "compiled with a cross-entropy of Keras. Write "
                f"`{name}(from_logits=True)` for logits, or "
                "`from_logits=False` for probabilities. "
                f"Received: {name} with from_logits=None"
            )
        return known

    def get_config(self) -> dict[str, Any]:
        """Returns every constructor argument."""
        # The next base class is a Keras metric, which has `get_config`.
        config = super().get_config()  # type: ignore[misc]
        return {**config, "from_logits": self.from_logits}
