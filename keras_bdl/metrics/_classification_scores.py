"""Streaming scores of a classifier, averaged over examples."""

from typing import Any

import keras
from keras import ops

from keras_bdl.metrics._class_distributions import ClassificationMetric
from keras_bdl.metrics._class_distributions import example_weights
from keras_bdl.metrics._class_distributions import label_distribution
from keras_bdl.metrics._class_distributions import log_probabilities


class ClassificationMean(ClassificationMetric, keras.metrics.Mean):
    """Base of the scores: a weighted mean of one score per example."""

    def update_state(self, y_true, y_pred, sample_weight=None):
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
        """Returns one number for each example.

        Args:
            y_true: Labels.
            log_probs: Log probabilities, classes on the last axis.
        """
        raise NotImplementedError


@keras.saving.register_keras_serializable(package="keras_bdl")
class BrierScore(ClassificationMean):
    """Mean squared error of the probabilities, summed over classes.

    Use it to score accuracy and calibration together. Unlike the negative
    log-likelihood, the score is always finite. With `y` the one-hot label,

        score = sum_c (p_c - y_c)^2,   between 0 and 2                    (1)

    An output that holds only class 1 counts as two classes: the score is twice
    the squared error of the probability of class 1.

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

    Call arguments:
        y_true: Integer labels, `(batch,)` or `(batch, 1)`, or one-hot or soft
            labels of the shape of `y_pred`.
        y_pred: `(batch, classes)`, or `(batch, 1)` for the probability (or
            logit) of class 1. Axes between the batch and the classes hold
            further examples.
        sample_weight: Weight of each example.

    Example:

    ```python
    metric = keras_bdl.metrics.NegativeLogLikelihood()
    model.compile("adam", loss, metrics=[metric])
    ```
    """

    # Keras callbacks with `mode="auto"` read this direction.
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
