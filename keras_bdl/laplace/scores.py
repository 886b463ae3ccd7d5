"""How the log-likelihood of a label changes with the output of a model."""

import abc
import math

from keras import ops

from keras_bdl.random.replica_numbers import fold_in


class Scores(abc.ABC):
    """Scores of labels that the model itself would draw.

    The loss of an example is `sum_e w_e (-log p(y_e | f))` over the entries e
    of its output f that have a label each; Keras takes the mean over the
    positions of a sequence or an image, and `w_e = 1 / positions`. With the
    scores s_e, the gradients of `log p(y_e | f)` by f,

        sum_e w_e E[s_e s_e^T],    y_e drawn from p(y_e | f)              (1)

    is the Fisher information of f, and the Hessian of the loss by f if f are
    logits or means. A model whose Jacobian by the weights is J has the Fisher
    information `J^T (1) J`.
    """

    def of_outputs(self, outputs):
        """Returns the scores to use, now that the outputs are known."""
        return self

    @abc.abstractmethod
    def options(self):
        """Returns the arguments that tell `keras_bdl.predict` the same."""

    @abc.abstractmethod
    def averaged(self, shape):
        """Returns the sizes of the axes that the loss is a mean over.

        Args:
            shape: That of the output, without the examples.
        """

    @abc.abstractmethod
    def component(self, outputs, mask):
        """Returns one of the vectors whose squares make (1), less w_e.

        There are as many as entries, and the mask says which.

        Args:
            outputs: f, at least in float32.
            mask: A tensor like the output of an example, with a single one.
        """

    @abc.abstractmethod
    def draw(self, outputs, seed):
        """Returns the scores of one drawn label for each e.

        Args:
            outputs: f, at least in float32.
            seed: A tensor of two integers.
        """

    def expected(self, outputs):
        """Returns K and a function from k < K to a vector v_k.

        The sum of all `v_k v_k^T` is (1), exactly.

        Args:
            outputs: f.
        """
        outputs, shape, root = self._prepared(outputs)
        size = math.prod(shape)

        def score(k):
            mask = ops.reshape(ops.one_hot(k, size, dtype=outputs.dtype), shape)
            return root * self.component(outputs, mask)

        return size, score

    def drawn(self, outputs, draws: int, seed):
        """Returns K and a function from k < K to a vector v_k.

        The sum of all `v_k v_k^T` has the expectation (1).

        Args:
            outputs: f.
            draws: K.
            seed: A tensor of two integers.
        """
        outputs, _, root = self._prepared(outputs)
        root = root / math.sqrt(draws)

        def score(k):
            return root * self.draw(outputs, fold_in(seed, k))

        return draws, score

    def _prepared(self, outputs):
        """Returns f, the shape of one example, and the root of w_e."""
        if outputs.dtype != "float64":
            outputs = ops.cast(outputs, "float32")
        shape = tuple(ops.shape(outputs)[1:])
        positions = ops.cast(math.prod(self.averaged(shape)), outputs.dtype)
        return outputs, shape, ops.rsqrt(positions)


def reciprocal(values):
    """Returns 1 / x, and 0 where x is 0.

    A probability that has underflowed does not change with the weights.

    Args:
        values: x, a tensor.
    """
    zero = ops.equal(values, 0.0)
    return ops.where(zero, 0.0, 1.0 / ops.where(zero, 1.0, values))


def nan_unless(valid, values):
    """Returns the values, or NaN, which whoever adds them up will find.

    A graph raises no errors.

    Args:
        valid: A boolean tensor that broadcasts.
        values: A tensor.
    """
    return ops.where(valid, values, float("nan"))
