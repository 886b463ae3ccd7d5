"""What the metrics that average a score over examples have in common."""

import keras
from keras import ops

from keras_bdl.metrics.class_distributions import check_from_logits
from keras_bdl.metrics.class_distributions import example_weights
from keras_bdl.metrics.class_distributions import log_probabilities
from keras_bdl.metrics.class_probabilities import ClassProbabilities


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
