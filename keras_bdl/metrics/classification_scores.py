"""Streaming scores of a classifier, averaged over examples."""

import keras
from keras import ops

from keras_bdl.metrics.class_distributions import ClassProbabilities
from keras_bdl.metrics.class_distributions import check_from_logits
from keras_bdl.metrics.class_distributions import example_weights
from keras_bdl.metrics.class_distributions import label_distribution
from keras_bdl.metrics.class_distributions import log_probabilities


class ClassificationMean(ClassProbabilities, keras.metrics.Mean):
    """Weighted mean of a score of class probabilities.

    Args:
        from_logits: Whether the model's output is logits and not
            probabilities; `None` where the compiled loss tells.
        name: Name of the metric.
        dtype: Type of the computation, `None` for `keras.config.floatx()`.
    """

    def __init__(self, from_logits: bool | None, name: str, dtype):
        super().__init__(name=name, dtype=dtype)
        check_from_logits(from_logits)
        self.from_logits = from_logits

    def update_state(self, y_true, y_pred, sample_weight=None):
        """Adds the scores of a batch."""
        logits = self.outputs_are_logits()
        log_probs = log_probabilities(y_pred, logits, self.dtype)
        score = self.score(y_true, log_probs)
        if sample_weight is not None:
            # What has no weight, such as padding, may have no valid label.
            sample_weight = example_weights(sample_weight, score)
            nothing = ops.zeros_like(score)
            score = ops.where(sample_weight == 0, nothing, score)
        super().update_state(score, sample_weight)

    def score(self, y_true, log_probs):
        """Returns one number for each example."""
        raise NotImplementedError

    def get_config(self):
        """Returns every constructor argument."""
        return {**super().get_config(), "from_logits": self.from_logits}


@keras.saving.register_keras_serializable(package="keras_bdl")
class BrierScore(ClassificationMean):
    """Mean over the examples of the squared error of the probabilities.

    With `y` the one-hot label, the errors are summed over the classes,

        score = sum_c (p_c - y_c)^2,   between 0 and 2                    (1)

    A Bernoulli output counts as two classes: its score is twice the squared
    error of the probability of class 1.

    Args:
        from_logits: Whether the model's output is logits and not
            probabilities. Defaults to `None`: the cross-entropy that a
            `keras_bdl.Model` is compiled with tells; elsewhere it must be
            given.
        name: Name of the metric. Defaults to `"brier_score"`.
        dtype: Type of the computation. Defaults to `None`,
            `keras.config.floatx()`.

    Call arguments:
        y_true: Integer labels, `(batch,)` or `(batch, 1)`, or one-hot or soft
            labels of the shape of `y_pred`.
        y_pred: `(batch, classes)`, or `(batch, 1)` for the probability (or
            logit) of class 1. Further axes after the batch are examples too.
        sample_weight: Weight of each example.

    Reference:
        - Brier, 1950, Verification of forecasts expressed in terms of
          probability, Monthly Weather Review 78
    """

    def __init__(
        self,
        from_logits: bool | None = None,
        name: str = "brier_score",
        dtype=None,
    ):
        super().__init__(from_logits, name, dtype)
        # Read by the callbacks of Keras that have `mode="auto"`.
        self._direction = "down"

    def score(self, y_true, log_probs):
        """Returns (1) of each example."""
        labels = label_distribution(y_true, log_probs)
        errors = ops.square(ops.exp(log_probs) - labels)
        return ops.sum(errors, axis=-1)  # (1)


@keras.saving.register_keras_serializable(package="keras_bdl")
class NegativeLogLikelihood(ClassificationMean):
    """Mean over the examples of the negative log probability of the label.

    Unlike the loss of a model it holds no regularisation and no KL, and
    unlike Keras's cross-entropies it clips nothing: a label that the model
    holds for impossible makes it infinite. Given logits it is stable; given
    float32 probabilities it is infinite where the softmax underflowed.

    Args:
        from_logits: Whether the model's output is logits and not
            probabilities. Defaults to `None`: the cross-entropy that a
            `keras_bdl.Model` is compiled with tells; elsewhere it must be
            given.
        name: Name of the metric. Defaults to `"negative_log_likelihood"`.
        dtype: Type of the computation. Defaults to `None`,
            `keras.config.floatx()`.

    Call arguments:
        y_true: Integer labels, `(batch,)` or `(batch, 1)`, or one-hot or soft
            labels of the shape of `y_pred`.
        y_pred: `(batch, classes)`, or `(batch, 1)` for the probability (or
            logit) of class 1. Further axes after the batch are examples too.
        sample_weight: Weight of each example.

    Example:

    ```python
    model.compile(
        "adam", loss, metrics=[bdl.metrics.NegativeLogLikelihood()]
    )
    ```
    """

    def __init__(
        self,
        from_logits: bool | None = None,
        name: str = "negative_log_likelihood",
        dtype=None,
    ):
        super().__init__(from_logits, name, dtype)
        # Read by the callbacks of Keras that have `mode="auto"`.
        self._direction = "down"

    def score(self, y_true, log_probs):
        """Returns the negative log-likelihood of each example."""
        labels = label_distribution(y_true, log_probs)
        # A class of label 0 adds 0 and not 0 * log 0.
        terms = ops.where(ops.equal(labels, 0.0), 0.0, labels * log_probs)
        return -ops.sum(terms, axis=-1)


@keras.saving.register_keras_serializable(package="keras_bdl")
class PredictiveEntropy(ClassificationMean):
    """Mean over the examples of the entropy of the prediction, in nats.

    Between 0 (certain) and `log(classes)` (uniform). The labels are not
    looked at.

    Args:
        from_logits: Whether the model's output is logits and not
            probabilities. Defaults to `None`: the cross-entropy that a
            `keras_bdl.Model` is compiled with tells; elsewhere it must be
            given.
        name: Name of the metric. Defaults to `"predictive_entropy"`.
        dtype: Type of the computation. Defaults to `None`,
            `keras.config.floatx()`.

    Call arguments:
        y_true: Not used.
        y_pred: `(batch, classes)`, or `(batch, 1)` for the probability (or
            logit) of class 1. Further axes after the batch are examples too.
        sample_weight: Weight of each example.
    """

    def __init__(
        self,
        from_logits: bool | None = None,
        name: str = "predictive_entropy",
        dtype=None,
    ):
        super().__init__(from_logits, name, dtype)

    def score(self, y_true, log_probs):
        """Returns the entropy of each example."""
        probs = ops.exp(log_probs)
        # A class of probability 0 adds 0 and not 0 * log 0.
        terms = ops.where(ops.equal(probs, 0.0), 0.0, probs * log_probs)
        return -ops.sum(terms, axis=-1)
