"""Scores of one label of several classes."""

from keras import ops

from keras_bdl.data.checked_inputs import SUM_TOLERANCE
from keras_bdl.laplace.binary_scores import BinaryScores
from keras_bdl.laplace.scores import Scores
from keras_bdl.laplace.scores import nan_unless
from keras_bdl.laplace.scores import reciprocal
from keras_bdl.random.replica_numbers import uniform


class ClassScores(Scores):
    """Scores of classes on the last axis, with probabilities p.

        s(y) = e_y - p    by logits,    s(y) = e_y / p_y    by p          (1)

    Args:
        from_logits: Whether the outputs are logits, and not p.
    """

    def __init__(self, from_logits: bool):
        self.from_logits = from_logits

    def of_outputs(self, outputs):
        """Returns scores of zero or one where there is but one entry."""
        if outputs.shape[-1] == 1:
            return BinaryScores(self.from_logits)
        return self

    def options(self):
        """Returns what the outputs mean."""
        return {"task": "classification", "from_logits": self.from_logits}

    def averaged(self, shape):
        """Returns all axes but that of the classes."""
        return shape[:-1]

    def component(self, outputs, mask):
        """Returns the score of a class, times the root of its probability."""
        if not self.from_logits:
            return mask * ops.sqrt(reciprocal(self._probabilities(outputs)))
        p = self._probabilities(outputs)
        # Zero at the other positions.
        of_class = ops.sum(mask * p, axis=-1, keepdims=True)
        return ops.sqrt(of_class) * (mask - p)

    def draw(self, outputs, seed):
        """Returns the score of a label."""
        p = self._probabilities(outputs)
        u = 0.5 + 0.5 * uniform(ops.shape(p)[:-1], seed)
        # The first class at which the distribution function reaches u.
        below = ops.cumsum(p, axis=-1) < ops.cast(u, p.dtype)[..., None]
        y = ops.sum(ops.cast(below[..., :-1], "int32"), axis=-1)
        y = ops.one_hot(y, p.shape[-1], dtype=p.dtype)
        return y - p if self.from_logits else y * reciprocal(p)

    def _probabilities(self, outputs):
        if self.from_logits:
            return ops.softmax(outputs)
        off = ops.abs(ops.sum(outputs, axis=-1, keepdims=True) - 1.0)
        return nan_unless((off < SUM_TOLERANCE) & (outputs >= 0.0), outputs)
