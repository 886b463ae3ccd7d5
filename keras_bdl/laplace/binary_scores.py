"""Scores of labels that are zero or one."""

from keras import ops

from keras_bdl.laplace.scores import Scores
from keras_bdl.laplace.scores import nan_unless
from keras_bdl.laplace.scores import reciprocal
from keras_bdl.random.replica_numbers import uniform


class BinaryScores(Scores):
    """Scores of Bernoulli variables, one an entry, with probabilities p.

        s(y) = y - p    by logits,    s(y) = (y - p) / (p (1 - p))  by p  (1)

    Args:
        from_logits: Whether the outputs are logits, and not p.
    """

    def __init__(self, from_logits: bool):
        self.from_logits = from_logits

    def options(self):
        """Returns what the outputs mean."""
        return {"task": "binary", "from_logits": self.from_logits}

    def averaged(self, shape):
        """Returns all axes."""
        return shape

    def component(self, outputs, mask):
        """Returns the root of the Fisher information of an entry."""
        if self.from_logits:
            # Not p (1 - p), which is 0 where p rounds to 1.
            variance = ops.sigmoid(outputs) * ops.sigmoid(-outputs)
            return mask * ops.sqrt(variance)
        p = self._probabilities(outputs)
        return mask * ops.sqrt(reciprocal(p * (1.0 - p)))

    def draw(self, outputs, seed):
        """Returns the scores of labels."""
        p = self._probabilities(outputs)
        u = 0.5 + 0.5 * uniform(ops.shape(p), seed)
        score = ops.cast(ops.cast(u, p.dtype) < p, p.dtype) - p
        if self.from_logits:
            return score
        return score * reciprocal(p * (1.0 - p))

    def _probabilities(self, outputs):
        if self.from_logits:
            return ops.sigmoid(outputs)
        return nan_unless((outputs >= 0.0) & (outputs <= 1.0), outputs)
