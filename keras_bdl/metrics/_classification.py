"""Streaming scores of a classifier, and labels and outputs as distributions.

A metric runs inside a compiled step and cannot raise errors there. An invalid
distribution over the classes (a label out of range, a row of logits declared
as probabilities, NaN) becomes a row of NaN. The metric then shows NaN instead
of a number that looks right.
"""

from typing import Any

import keras
from keras import ops

from keras_bdl._arguments import check_choice

# Allows for the rounding of a sum over a thousand classes in half precision.
SUM_TOLERANCE = 2e-2


def probabilities(y_pred: Any, from_logits: bool, dtype: str) -> Any:
    """Returns probabilities of at least two classes on the last axis.

    A last axis of size 1 holds the probability, or the logit, of class 1.
    """
    if from_logits:
        return ops.exp(log_probabilities(y_pred, from_logits, dtype))
    y_pred = ops.cast(y_pred, dtype)
    if y_pred.shape[-1] == 1:
        y_pred = ops.concatenate([1.0 - y_pred, y_pred], axis=-1)
    return _nan_unless_distribution(y_pred)


def log_probabilities(y_pred: Any, from_logits: bool, dtype: str) -> Any:
    """Returns the logarithm of `probabilities`, exact for logits."""
    if not from_logits:
        return ops.log(probabilities(y_pred, from_logits, dtype))
    y_pred = ops.cast(y_pred, dtype)
    if y_pred.shape[-1] == 1:
        return ops.log_sigmoid(ops.concatenate([-y_pred, y_pred], axis=-1))
    return ops.log_softmax(y_pred, axis=-1)


def label_distribution(y_true: Any, probs: Any) -> Any:
    """Returns labels as a distribution over classes for each example."""
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


def _nan_unless_distribution(rows: Any) -> Any:
    """Returns rows, with NaN for a negative entry or a sum other than 1."""
    error = ops.abs(ops.sum(rows, axis=-1, keepdims=True) - 1.0)
    lowest = ops.min(rows, axis=-1, keepdims=True)
    valid = ops.logical_and(error < SUM_TOLERANCE, lowest >= 0.0)
    return ops.where(valid, rows, float("nan"))


def example_weights(sample_weight: Any, values: Any) -> Any:
    """Returns sample weights, broadcast to the shape of `values`."""
    if sample_weight is None:
        return ops.ones_like(values)
    weight = ops.cast(sample_weight, values.dtype)
    rank = len(values.shape)
    if len(weight.shape) == rank + 1 and weight.shape[-1] == 1:
        weight = ops.squeeze(weight, -1)
    while len(weight.shape) < rank:
        weight = ops.expand_dims(weight, -1)
    return ops.broadcast_to(weight, ops.shape(values))


class ClassificationMetric(keras.metrics.Metric):
    """Base of the metrics of class probabilities."""

    default_name: str
    _of_loss: bool | None = None

    def __init__(
        self,
        *,
        from_logits: bool | None = None,
        name: str | None = None,
        dtype: str | None = None,
    ):
        super().__init__(name=name or self.default_name, dtype=dtype)
        check_choice("from_logits", from_logits, (None, True, False))
        self.from_logits = from_logits

    def learn(self, likelihood: Any) -> None:
        """Stores whether the compiled loss, `None` if unknown, takes logits."""
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
        return {**super().get_config(), "from_logits": self.from_logits}


class ClassificationMean(ClassificationMetric, keras.metrics.Mean):
    """Base of the scores: a weighted mean of one score per example."""

    def update_state(
        self, y_true: Any, y_pred: Any, sample_weight: Any = None
    ) -> None:
        """Adds the scores of a batch."""
        logits = self.outputs_are_logits()
        log_probs = log_probabilities(y_pred, logits, self.dtype)
        score = self.score(y_true, log_probs)
        if sample_weight is not None:
            # Examples of weight 0, such as padding, may have an invalid label.
            sample_weight = example_weights(sample_weight, score)
            nothing = ops.zeros_like(score)
            score = ops.where(sample_weight == 0, nothing, score)
        super().update_state(score, sample_weight)

    def score(self, y_true: Any, log_probs: Any) -> Any:
        """Returns one number for each example."""
        raise NotImplementedError


@keras.saving.register_keras_serializable(package="keras_bdl")
class BrierScore(ClassificationMean):
    """Mean squared error of the probabilities, summed over classes.

    Use it to score accuracy and calibration together. Unlike the negative
    log-likelihood, the score is always finite. With `y` the one-hot label,

        score = sum_c (p_c - y_c)^2,   between 0 and 2                    (1)

    An output that holds only class 1 counts as two classes: the score is twice
    the squared error of the probability of class 1.

    Args:
        from_logits: Whether the outputs are logits instead of probabilities.
            Defaults to `None`: a `keras_bdl.Model` takes the answer from its
            compiled cross-entropy. Other models need `True` or `False`.
        name: Name of the metric. Defaults to `None`, the name of the class in
            snake case.
        dtype: Dtype of the computation. Defaults to `None`,
            `keras.config.floatx()`.

    Call arguments:
        y_true: Integer labels, `(batch,)` or `(batch, 1)`, or one-hot or soft
            labels of the shape of `y_pred`.
        y_pred: `(batch, classes)`, or `(batch, 1)` for the probability (or
            logit) of class 1. Axes between the batch and the classes hold
            further examples.
        sample_weight: Weight of each example.

    Example:

    ```python
    metric = keras_bdl.metrics.BrierScore(from_logits=True)
    model.compile("sgd", loss, metrics=[metric])
    model.evaluate(x, y, verbose=0)
    ```

    Reference:
        - Brier, 1950, Verification of forecasts expressed in terms of
          probability, Monthly Weather Review 78
    """

    # Keras callbacks with `mode="auto"` read this direction.
    _direction = "down"
    default_name = "brier_score"

    def score(self, y_true: Any, log_probs: Any) -> Any:
        """Returns (1) of each example."""
        labels = label_distribution(y_true, log_probs)
        errors = ops.square(ops.exp(log_probs) - labels)
        return ops.sum(errors, axis=-1)  # (1)


@keras.saving.register_keras_serializable(package="keras_bdl")
class NegativeLogLikelihood(ClassificationMean):
    """Mean negative log probability of the label.

    Use it to compare models whose losses contain regularizers or a KL term.
    Unlike the cross-entropies of Keras, the metric does not clip
    probabilities: the metric is infinite if a label has probability 0. Logits
    give the exact value. Probabilities in float32 may underflow to 0.

    Args:
        from_logits, name, dtype: As in `keras_bdl.metrics.BrierScore`.

    The call arguments are those of `keras_bdl.metrics.BrierScore`.

    Example:

    ```python
    metric = keras_bdl.metrics.NegativeLogLikelihood()
    model.compile("adam", loss, metrics=[metric])
    ```
    """

    _direction = "down"
    default_name = "negative_log_likelihood"

    def score(self, y_true: Any, log_probs: Any) -> Any:
        """Returns the negative log-likelihood of each example."""
        labels = label_distribution(y_true, log_probs)
        # A class with label probability 0 adds 0; 0 * log 0 would be NaN.
        terms = ops.where(ops.equal(labels, 0.0), 0.0, labels * log_probs)
        return -ops.sum(terms, axis=-1)


@keras.saving.register_keras_serializable(package="keras_bdl")
class PredictiveEntropy(ClassificationMean):
    """Mean entropy of the predicted probabilities, in nats.

    The entropy is between 0 (certain) and `log(classes)` (uniform). The
    metric ignores the labels, so placeholders may replace missing labels.

    Args:
        from_logits, name, dtype: As in `keras_bdl.metrics.BrierScore`.

    Call arguments:
        y_true: Not used.
        y_pred: `(batch, classes)`, or `(batch, 1)` for the probability (or
            logit) of class 1. Axes between the batch and the classes hold
            further examples.
        sample_weight: Weight of each example.

    Example:

    ```python
    metric = keras_bdl.metrics.PredictiveEntropy(from_logits=True)
    model.compile("sgd", loss, metrics=[metric])
    model.evaluate(x, y, verbose=0)
    ```
    """

    default_name = "predictive_entropy"

    def score(self, y_true: Any, log_probs: Any) -> Any:
        """Returns the entropy of each example."""
        probs = ops.exp(log_probs)
        # A class of probability 0 adds 0; 0 * log 0 would be NaN.
        terms = ops.where(ops.equal(probs, 0.0), 0.0, probs * log_probs)
        return -ops.sum(terms, axis=-1)
