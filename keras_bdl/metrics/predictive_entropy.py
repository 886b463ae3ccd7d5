"""Entropy of the predicted class probabilities."""

import keras
from keras import ops

from keras_bdl.metrics.classification_mean import ClassificationMean


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
