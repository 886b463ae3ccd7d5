"""What the metrics that average a score over examples have in common."""

import keras

from keras_bdl.metrics.class_distributions import log_probabilities


class ClassificationMean(keras.metrics.Mean):
    """Weighted mean of a score of class probabilities.

    Args:
        from_logits: Whether the model's output is logits and not
            probabilities.
        name: Name of the metric.
        dtype: Type of the computation, `None` for `keras.config.floatx()`.
    """

    def __init__(self, from_logits: bool, name: str, dtype):
        super().__init__(name=name, dtype=dtype)
        self.from_logits = from_logits

    def update_state(self, y_true, y_pred, sample_weight=None):
        """Adds the scores of a batch."""
        log_probs = log_probabilities(y_pred, self.from_logits, self.dtype)
        super().update_state(self.score(y_true, log_probs), sample_weight)

    def score(self, y_true, log_probs):
        """Returns one number for each example."""
        raise NotImplementedError

    def get_config(self):
        """Returns every constructor argument."""
        return {**super().get_config(), "from_logits": self.from_logits}
