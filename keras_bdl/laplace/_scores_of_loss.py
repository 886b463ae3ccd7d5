"""The scores of each kind of loss."""

import math
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from keras import ops

from keras_bdl import likelihoods
from keras_bdl._data._checked_inputs import SUM_TOLERANCE
from keras_bdl._random._forward_pass_noise import normal
from keras_bdl._random._forward_pass_noise import uniform
from keras_bdl.laplace._scores import Scores
from keras_bdl.laplace._scores import nan_unless
from keras_bdl.laplace._scores import reciprocal
from keras_bdl.likelihoods._loss_as_likelihood import NO_LIKELIHOOD
from keras_bdl.likelihoods._loss_as_likelihood import loss_function
from keras_bdl.prediction._likelihood import Likelihood


class GaussianScores(Scores):
    """Scores of a Gaussian likelihood: for the mean and stddev of targets.

    The derivatives of the log-likelihood with respect to the mean (1) and to
    stddev (2) are, with z = (target - mean) / stddev,

        s = z / stddev                                                    (1)
        s = (z^2 - 1) / stddev                                            (2)

    The second moments are `1 / stddev^2` for (1) and `2 / stddev^2` for (2).
    (2) applies if the model returns the standard deviation.

    Args:
        likelihood: A `keras_bdl.likelihoods.Gaussian`.
    """

    def __init__(self, likelihood: likelihoods.Gaussian):
        self._likelihood = likelihood

    # The noise is known, or learned apart from the mean.
    depends_on_outputs = False

    def options(self) -> dict[str, Any]:
        """Returns the argument `moments`, a function of the likelihood."""

        def moments(outputs):
            # The only output may be in a list or a dictionary.
            return self._likelihood.moments(keras.tree.flatten(outputs)[0])

        return {"moments": moments}

    def averaged(self, shape: tuple) -> tuple:
        """Returns the sizes of all axes but the last, the axis of targets.

        The loss is a sum over the last axis.
        """
        return shape[:-1]

    def component(self, outputs: Any, mask: Any) -> Any:
        """Returns the square root of the Fisher information of an entry."""
        stddev = self._stddev(outputs)
        if self._is_known:
            return mask / stddev
        return mask * ops.concatenate(
            [1.0 / stddev, math.sqrt(2.0) / stddev], axis=-1
        )

    def draw(self, outputs: Any, seed: Any) -> Any:
        """Returns the scores of drawn targets."""
        stddev = self._stddev(outputs)
        z = ops.cast(normal(ops.shape(stddev), seed), stddev.dtype)
        if self._is_known:
            return z / stddev  # (1)
        return ops.concatenate(
            [z / stddev, (ops.square(z) - 1.0) / stddev], axis=-1
        )  # (1), (2)

    @property
    def _is_known(self):
        return self._likelihood.noise_stddev is not None

    def _stddev(self, outputs):
        return ops.sqrt(self._likelihood.moments(outputs)[1])


class BinaryScores(Scores):
    """Scores of Bernoulli labels, one label for each entry of the output.

    Let p be the probability that the label y is 1. The derivative of the
    log-likelihood with respect to the output is

        s(y) = y - p                    for logits                        (1)
        s(y) = (y - p) / (p (1 - p))    for outputs p                     (2)

    Args:
        from_logits: Whether the outputs are logits instead of p.
    """

    def __init__(self, from_logits: bool):
        self.from_logits = from_logits

    def logits(self, outputs: Any) -> Any:
        """Returns the outputs as logits."""
        if self.from_logits:
            return outputs
        return _log(outputs) - _log(1.0 - outputs)

    def of_logits(self) -> Scores:
        """Returns the same scores for a model that returns logits."""
        return BinaryScores(True)

    def logits_derivative(self, outputs: Any) -> Any:
        """Returns the derivative of `logits`, entry by entry."""
        if self.from_logits:
            return ops.ones_like(outputs)
        return reciprocal(outputs * (1.0 - outputs))

    def options(self) -> dict[str, Any]:
        """Returns `task` and `from_logits`."""
        return {"task": "binary", "from_logits": self.from_logits}

    def averaged(self, shape: tuple) -> tuple:
        """Returns the sizes of all axes but the last, the axis of labels.

        Keras averages over the labels, but their likelihood is a product.
        """
        return shape[:-1]

    def component(self, outputs: Any, mask: Any) -> Any:
        """Returns the square root of the Fisher information of an entry."""
        if self.from_logits:
            # Not p (1 - p), which is 0 where p rounds to 1.
            variance = ops.sigmoid(outputs) * ops.sigmoid(-outputs)
            return mask * ops.sqrt(variance)
        p = self._probabilities(outputs)
        return mask * ops.sqrt(reciprocal(p * (1.0 - p)))

    def draw(self, outputs: Any, seed: Any) -> Any:
        """Returns the scores of drawn labels."""
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


class ClassScores(Scores):
    """Scores of class labels, with the classes on the last axis.

    Let p be the probabilities of the classes and e_y the one-hot vector of
    the label y. The gradient of the log-likelihood with respect to the output
    is

        s(y) = e_y - p      for logits                                    (1)
        s(y) = e_y / p_y    for outputs p                                 (2)

    Args:
        from_logits: Whether the outputs are logits instead of p.
    """

    def __init__(self, from_logits: bool):
        self.from_logits = from_logits

    def of_outputs(self, outputs: Any) -> Scores:
        """Returns `BinaryScores` if the last axis has one entry, or `self`."""
        if outputs.shape[-1] == 1:
            return BinaryScores(self.from_logits)
        return self

    def logits(self, outputs: Any) -> Any:
        """Returns the outputs as logits."""
        return outputs if self.from_logits else _log(outputs)

    def of_logits(self) -> Scores:
        """Returns the same scores for a model that returns logits."""
        return ClassScores(True)

    def logits_derivative(self, outputs: Any) -> Any:
        """Returns the derivative of `logits`, entry by entry."""
        if self.from_logits:
            return ops.ones_like(outputs)
        return reciprocal(outputs)

    def options(self) -> dict[str, Any]:
        """Returns `task` and `from_logits`."""
        return {"task": "classification", "from_logits": self.from_logits}

    def averaged(self, shape: tuple) -> tuple:
        """Returns the sizes of all axes but the last, the axis of classes."""
        return shape[:-1]

    def component(self, outputs: Any, mask: Any) -> Any:
        """Returns the score of a class times `sqrt(p)` of this class."""
        if not self.from_logits:
            return mask * ops.sqrt(reciprocal(self._probabilities(outputs)))
        p = self._probabilities(outputs)
        # This is 0 at the other positions.
        of_class = ops.sum(mask * p, axis=-1, keepdims=True)
        return ops.sqrt(of_class) * (mask - p)

    def draw(self, outputs: Any, seed: Any) -> Any:
        """Returns the score of a drawn label."""
        p = self._probabilities(outputs)
        u = 0.5 + 0.5 * uniform(ops.shape(p)[:-1], seed)
        # y is the first class whose cumulative probability reaches u.
        below = ops.cumsum(p, axis=-1) < ops.cast(u, p.dtype)[..., None]
        y = ops.sum(ops.cast(below[..., :-1], "int32"), axis=-1)
        y = ops.one_hot(y, p.shape[-1], dtype=p.dtype)
        return y - p if self.from_logits else y * reciprocal(p)

    def _probabilities(self, outputs):
        if self.from_logits:
            return ops.softmax(outputs)
        off = ops.abs(ops.sum(outputs, axis=-1, keepdims=True) - 1.0)
        return nan_unless((off < SUM_TOLERANCE) & (outputs >= 0.0), outputs)


class PoissonScores(Scores):
    """Scores of Poisson counts, one count for each entry of the output.

    Let r be the rate of the count y. The derivative of the log-likelihood with
    respect to the output is

        s(y) = y / r - 1    for outputs r                                 (1)
        s(y) = y - r        for outputs log r                             (2)

    Args:
        of_log_rates: Whether the outputs are log r instead of r. Defaults to
            `False`.
    """

    def __init__(self, of_log_rates: bool = False):
        self._of_log_rates = of_log_rates

    def logits(self, outputs: Any) -> Any:
        """Returns log r, in which the network is linearised."""
        return outputs if self._of_log_rates else _log(outputs)

    def of_logits(self) -> Scores:
        """Returns the same scores for a model that returns log r."""
        return PoissonScores(True)

    def logits_derivative(self, outputs: Any) -> Any:
        """Returns the derivative of `logits`, entry by entry."""
        if self._of_log_rates:
            return ops.ones_like(outputs)
        return reciprocal(outputs)

    def options(self) -> dict[str, Any]:
        """Returns no options: the compiled loss of the model says all."""
        return {}

    def averaged(self, shape: tuple) -> tuple:
        """Returns the sizes of all axes but the last, the axis of counts."""
        return shape[:-1]

    def component(self, outputs: Any, mask: Any) -> Any:
        """Returns the square root of the Fisher information of an entry."""
        root = ops.sqrt(self._rates(outputs))
        return mask * (root if self._of_log_rates else reciprocal(root))

    def draw(self, outputs: Any, seed: Any) -> Any:
        """Returns the scores of drawn counts."""
        rates = self._rates(outputs)
        y = tf.random.stateless_poisson(
            ops.shape(rates), seed, rates, dtype=rates.dtype
        )
        score = y - rates
        return score if self._of_log_rates else score * reciprocal(rates)

    def _rates(self, outputs):
        if self._of_log_rates:
            return ops.exp(outputs)
        return nan_unless(outputs >= 0.0, outputs)


def _log(p):
    return ops.log(ops.maximum(p, float(np.finfo("float32").tiny)))


def scores_of_loss(loss: Any) -> Scores:
    """Returns the `Scores` of a loss that is a negative log-likelihood.

    Args:
        loss: The loss of one output, as in `compile`.
    """
    if isinstance(loss, likelihoods.Gaussian):
        return GaussianScores(loss)
    likelihood = None
    function, arguments = loss_function(loss)
    if function not in NO_LIKELIHOOD:
        likelihood = Likelihood.of_loss(loss)
    if likelihood is not None and likelihood.is_of_counts:
        return PoissonScores()
    if likelihood is None or likelihood.task == "regression":
        raise ValueError(
            "`loss` must be a negative log-likelihood: a cross-entropy, the "
            "Poisson loss or `keras_bdl.likelihoods.Gaussian`. "
            "For a model trained with the mean squared error, pass "
            "`loss=keras_bdl.likelihoods.Gaussian(noise_stddev=...)` with the "
            f"standard deviation of the noise. Received: loss={loss!r}"
        )
    if arguments.get("ignore_class") is not None:
        raise ValueError(
            "`loss` must not ignore a class, because the model draws all "
            "classes. Received: loss with "
            f"ignore_class={arguments['ignore_class']}"
        )
    if likelihood.task == "binary":
        if arguments.get("axis", -1) != -1:
            raise ValueError(
                "The loss must have the labels on the last axis. "
                f"Received: a loss with axis={arguments['axis']}"
            )
        return BinaryScores(likelihood.from_logits)
    return ClassScores(likelihood.from_logits)
