"""Negative log-likelihood of a classifier."""

import keras
from keras import ops

from keras_bdl.metrics.class_distributions import label_distribution
from keras_bdl.metrics.classification_mean import ClassificationMean


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
