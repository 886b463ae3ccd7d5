"""Gradients of a log-likelihood with respect to the output of a model."""

import abc
import math
from collections.abc import Callable
from typing import Any

from keras import ops

from keras_bdl._random._noise import fold_in


class Scores(abc.ABC):
    """Scores of labels drawn from the model itself.

    Let f be the output of an example, with a label for each entry e. The loss
    of the example is `sum_e w_e (-log p(y_e | f))`. Keras takes the mean over
    the positions of a sequence or an image, so `w_e = 1 / positions`. Several
    labels at one position are independent, and their terms are added. The score
    s_e is the gradient of `log p(y_e | f)` with respect to f. Then

        sum_e w_e E[s_e s_e^T],    y_e drawn from p(y_e | f)              (1)

    is the Fisher information of f. If f are logits or means, (1) is also the
    Hessian of the loss with respect to f. With J the Jacobian of f with
    respect to the weights, the weights have the Fisher information
    `J^T (1) J`.
    """

    # Whether (1) depends on f, so that an average over f is another matrix.
    depends_on_outputs = True

    def logits(self, outputs: Any) -> Any:
        """Returns the values in which a network is linearised: logits, or f.

        Args:
            outputs: f.
        """
        return outputs

    def of_logits(self) -> "Scores":
        """Returns the same scores for a model that returns logits."""
        raise NotImplementedError

    def logits_derivative(self, outputs: Any) -> Any:
        """Returns the derivative of `logits`, entry by entry.

        Args:
            outputs: f.
        """
        raise NotImplementedError

    def of_outputs(self, outputs: Any) -> "Scores":
        """Returns the scores for outputs of a known shape.

        Args:
            outputs: f.
        """
        return self

    @abc.abstractmethod
    def options(self) -> dict[str, Any]:
        """Returns the arguments of `keras_bdl.predict` for this loss."""

    @abc.abstractmethod
    def averaged(self, shape: tuple) -> tuple:
        """Returns the sizes of the axes over which the loss is a mean.

        Args:
            shape: Shape of the output without the axis of examples.
        """

    @abc.abstractmethod
    def component(self, outputs: Any, mask: Any) -> Any:
        """Returns a vector v_e for one entry e of the output.

        The sum of `w_e v_e v_e^T` over all entries is (1) of `Scores`.

        Args:
            outputs: f, at least in float32.
            mask: A tensor like the output of an example, 1 at e and 0
                elsewhere.
        """

    @abc.abstractmethod
    def draw(self, outputs: Any, seed: Any) -> Any:
        """Returns the scores of drawn labels, one label for each entry e.

        Args:
            outputs: f, at least in float32.
            seed: A tensor of two integers.
        """

    def expected(self, outputs: Any) -> tuple[int, Callable]:
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

    def drawn(
        self, outputs: Any, samples: int, seed: Any
    ) -> tuple[int, Callable]:
        """Returns K and a function from k < K to a vector v_k.

        The sum of all `v_k v_k^T` has the expectation (1).

        Args:
            outputs: f.
            samples: K, the number of labels for each e.
            seed: A tensor of two integers.
        """
        outputs, _, root = self._prepared(outputs)
        root = root / math.sqrt(samples)

        def score(k):
            return root * self.draw(outputs, fold_in(seed, k))

        return samples, score

    def _prepared(self, outputs):
        """Returns three values: f, the shape of one example, `sqrt(w_e)`."""
        if outputs.dtype != "float64":
            outputs = ops.cast(outputs, "float32")
        shape = tuple(ops.shape(outputs)[1:])
        positions = ops.cast(math.prod(self.averaged(shape)), outputs.dtype)
        return outputs, shape, ops.rsqrt(positions)


class ScoresAt:
    """Scores of labels that other logits predict.

    The vectors are gradients with respect to the outputs f of the model, and
    the labels have the distribution of other logits: those of the linearised
    model at a sample of the weights.

    Args:
        scores: The `Scores` of the model.
        logits: The other logits.
    """

    def __init__(self, scores: Scores, logits: Any):
        self._scores = scores
        self._logits = logits

    def expected(self, outputs: Any) -> tuple[int, Callable]:
        """Returns the same as `Scores.expected`."""
        size, score = self._scores.of_logits().expected(self._logits)
        return size, self._chained(outputs, score)

    def drawn(
        self, outputs: Any, samples: int, seed: Any
    ) -> tuple[int, Callable]:
        """Returns the same as `Scores.drawn`."""
        scores = self._scores.of_logits()
        size, score = scores.drawn(self._logits, samples, seed)
        return size, self._chained(outputs, score)

    def _chained(self, outputs, score):
        if outputs.dtype != "float64":
            outputs = ops.cast(outputs, "float32")
        derivative = self._scores.logits_derivative(outputs)
        return lambda k: derivative * score(k)


def reciprocal(values: Any) -> Any:
    """Returns 1 / x, and 0 for x = 0.

    If a probability underflows to 0, its gradient with respect to the weights
    is 0 too. The result 0 then avoids the product of infinity and 0.

    Args:
        values: x, a tensor.
    """
    zero = ops.equal(values, 0.0)
    return ops.where(zero, 0.0, 1.0 / ops.where(zero, 1.0, values))


def nan_unless(valid: Any, values: Any) -> Any:
    """Returns values where they are valid, and NaN elsewhere.

    A graph cannot raise errors. The code outside of the graph checks for NaN.

    Args:
        valid: A boolean tensor that broadcasts.
        values: A tensor.
    """
    return ops.where(valid, values, float("nan"))
