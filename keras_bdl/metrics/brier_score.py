"""Brier score of a classifier."""

import keras
from keras import ops

from keras_bdl.metrics.class_distributions import label_distribution
from keras_bdl.metrics.classification_mean import ClassificationMean


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
