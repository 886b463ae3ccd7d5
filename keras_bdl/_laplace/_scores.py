"""Gradients of a log-likelihood with respect to the outputs of a model."""

import abc
import math
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_bdl import likelihoods
from keras_bdl._backend import poisson
from keras_bdl._data._checked_inputs import SUM_TOLERANCE
from keras_bdl._random._noise import fold_in
from keras_bdl._random._noise import normal
from keras_bdl._random._noise import uniform
from keras_bdl.likelihoods._loss_as_likelihood import NO_LIKELIHOOD
from keras_bdl.likelihoods._loss_as_likelihood import loss_function
from keras_bdl.prediction._outputs import Likelihood
from keras_bdl.prediction._outputs import per_output

# K, and a function from k < K to a vector v_k (for several outputs, to a list).
Vectors = tuple[Any, Callable]


class Scores(abc.ABC):
    """Scores of labels drawn from the model itself, for one output.

    Let f be the output of an example, with a label for each entry e. The loss
    of the example is `sum_e w_e (-log p(y_e | f))`. Keras takes the mean over
    the positions of a sequence or an image, so `w_e = 1 / positions`. Several
    labels at one position, on the last axis, are independent, and their terms
    are added. The score s_e is the gradient of `log p(y_e | f)` with respect to
    f. Then

        sum_e w_e E[s_e s_e^T],    y_e drawn from p(y_e | f)              (1)

    is the Fisher information of f. If f are logits or means, (1) is also the
    Hessian of the loss with respect to f. With J the Jacobian of f with
    respect to the weights, the weights have the Fisher information
    `J^T (1) J`.
    """

    # Whether (1) depends on f, so that an average over f is another matrix.
    depends_on_outputs = True
    # The last functions of a network with a closed form: for outputs that are
    # logits or means, and for others.
    tails: tuple[tuple, tuple] = ((keras.activations.linear,), ())

    def __init__(self, from_logits: bool):
        self.from_logits = from_logits

    def logits(self, outputs: Any) -> Any:
        """Returns the values in which a network is linearised."""
        return outputs if self.from_logits else self._link(outputs)

    def vectors(
        self,
        outputs: Any,
        *,
        samples: int | None = None,
        seed: Any = None,
        at: Any = None,
    ) -> Vectors:
        """Returns v_k whose `v_k v_k^T` have the sum (1).

        With `samples`, as many labels are drawn for each entry, and only the
        expectation of the sum is (1). With logits `at`, the labels have the
        distribution of these logits: those of the linearised model at a sample
        of the weights. The v_k are still gradients with respect to `outputs`.
        """
        outputs = _precise(outputs)
        if at is not None and self.depends_on_outputs:
            of_logits = type(self)(True)
            count, score = of_logits.vectors(at, samples=samples, seed=seed)
            if self.from_logits:
                return count, score
            derivative = self._link_derivative(outputs)
            return count, lambda k: derivative * score(k)
        shape = tuple(ops.shape(outputs)[1:])
        positions = ops.cast(math.prod(shape[:-1]), outputs.dtype)
        root = ops.rsqrt(positions)  # of w_e
        if samples is not None:
            root = root / math.sqrt(samples)
            return (
                samples,
                lambda k: root * self._drawn(outputs, fold_in(seed, k)),
            )
        size = math.prod(shape)

        def score_of_entry(k: Any) -> Any:
            mask = ops.reshape(ops.one_hot(k, size, dtype=outputs.dtype), shape)
            return root * self._expected(outputs, mask)

        return size, score_of_entry

    def of_outputs(self, outputs: Any) -> "Scores":
        """Returns the scores for outputs of a known shape."""
        return self

    def has_closed_form(self, tail: Any) -> bool:
        """Returns whether `curvature` holds for outputs `tail(z)`."""
        known = self.tails[0] if self.from_logits else self.tails[1]
        return any(tail is one for one in known)

    def curvature(self, z: Any, tail: Any) -> tuple[Any, Any]:
        """Returns the diagonal of the Fisher information of z, and p.

        Outside of the diagonal, the information is `-p p^T`, or zero if p is
        `None`. `z` are rows before the function `tail`, see `has_closed_form`.
        For all but learned noise, z are the logits.
        """
        raise NotImplementedError

    @abc.abstractmethod
    def options(self) -> dict[str, Any]:
        """Returns the arguments of `keras_bdl.predict` for this loss."""

    @abc.abstractmethod
    def _expected(self, outputs: Any, mask: Any) -> Any:
        """Returns v_e of the entry e where `mask` is 1.

        The sum of `w_e v_e v_e^T` over all entries is (1).
        """

    @abc.abstractmethod
    def _drawn(self, outputs: Any, seed: Any) -> Any:
        """Returns the scores of drawn labels, one label for each entry."""

    def _link(self, outputs: Any) -> Any:
        """Returns the logits of outputs that are none."""
        raise NotImplementedError

    def _link_derivative(self, outputs: Any) -> Any:
        """Returns the derivative of `_link`, entry by entry."""
        raise NotImplementedError


class GaussianScores(Scores):
    """Scores of a Gaussian likelihood: for the mean and stddev of targets.

    The derivatives of the log-likelihood with respect to the mean (1) and to
    stddev (2) are, with z = (target - mean) / stddev,

        s = z / stddev                                                    (1)
        s = (z^2 - 1) / stddev                                            (2)

    The second moments are `1 / stddev^2` for (1) and `2 / stddev^2` for (2).
    (2) applies if the model returns the standard deviation.
    """

    # The noise is known, or learned apart from the mean.
    depends_on_outputs = False

    def __init__(self, likelihood: likelihoods.Gaussian):
        super().__init__(from_logits=True)
        self._likelihood = likelihood
        self._is_known = likelihood.noise_stddev is not None

    def options(self) -> dict[str, Any]:
        """Returns the argument `moments`, a function of the likelihood."""

        def moments(outputs: Any) -> Any:
            # The only output may be in a list or a dictionary.
            return self._likelihood.moments(keras.tree.flatten(outputs)[0])

        return {"moments": moments}

    def has_closed_form(self, tail: Any) -> bool:
        """Returns whether `curvature` holds for outputs `tail(z)`."""
        if self._is_known:
            return super().has_closed_form(tail)
        learned = isinstance(tail, likelihoods.LearnedStddev)
        return learned or tail is likelihoods.mean_and_stddev

    def curvature(self, z: Any, tail: Any) -> tuple[Any, Any]:
        """Returns the diagonal for means, or for means and raw stddevs."""
        # A layer may compute in half precision.
        stddev = self._stddev(ops.cast(tail(z), z.dtype))
        of_mean = ops.square(1.0 / stddev)
        if tail is not likelihoods.mean_and_stddev:
            return of_mean, None
        slope = ops.sigmoid(ops.split(z, 2, axis=-1)[1])  # of softplus
        return ops.concatenate(
            [of_mean, 2.0 * of_mean * ops.square(slope)], axis=-1
        ), None

    def _expected(self, outputs: Any, mask: Any) -> Any:
        stddev = self._stddev(outputs)
        if self._is_known:
            return mask / stddev
        return mask * ops.concatenate(
            [1.0 / stddev, math.sqrt(2.0) / stddev], axis=-1
        )

    def _drawn(self, outputs: Any, seed: Any) -> Any:
        stddev = self._stddev(outputs)
        z = ops.cast(normal(ops.shape(stddev), seed), stddev.dtype)
        if self._is_known:
            return z / stddev  # (1)
        return ops.concatenate(
            [z / stddev, (ops.square(z) - 1.0) / stddev], axis=-1
        )  # (1), (2)

    def _stddev(self, outputs: Any) -> Any:
        return ops.sqrt(self._likelihood.moments(outputs)[1])


class BinaryScores(Scores):
    """Scores of Bernoulli labels, one label for each entry of the output.

    Let p be the probability that the label y is 1. The derivative of the
    log-likelihood with respect to the output is

        s(y) = y - p                    for logits                        (1)
        s(y) = (y - p) / (p (1 - p))    for outputs p                     (2)

    Keras averages over the labels, but their likelihood is a product.
    """

    tails = (keras.activations.linear,), (keras.activations.sigmoid,)

    def options(self) -> dict[str, Any]:
        """Returns `task` and `from_logits`."""
        return {"task": "binary", "from_logits": self.from_logits}

    def curvature(self, z: Any, tail: Any) -> tuple[Any, Any]:
        """Returns `p (1 - p)`, which is not 0 where p rounds to 1."""
        return ops.sigmoid(z) * ops.sigmoid(-z), None

    def _link(self, outputs: Any) -> Any:
        return _log(outputs) - _log(1.0 - outputs)

    def _link_derivative(self, outputs: Any) -> Any:
        return _reciprocal(outputs * (1.0 - outputs))

    def _expected(self, outputs: Any, mask: Any) -> Any:
        if self.from_logits:
            # Not p (1 - p), which is 0 where p rounds to 1.
            variance = ops.sigmoid(outputs) * ops.sigmoid(-outputs)
            return mask * ops.sqrt(variance)
        p = self._probabilities(outputs)
        return mask * ops.sqrt(_reciprocal(p * (1.0 - p)))

    def _drawn(self, outputs: Any, seed: Any) -> Any:
        p = self._probabilities(outputs)
        u = 0.5 + 0.5 * uniform(ops.shape(p), seed)
        score = ops.cast(ops.cast(u, p.dtype) < p, p.dtype) - p
        if self.from_logits:
            return score  # (1)
        return score * _reciprocal(p * (1.0 - p))  # (2)

    def _probabilities(self, outputs: Any) -> Any:
        if self.from_logits:
            return ops.sigmoid(outputs)
        return _nan_unless((outputs >= 0.0) & (outputs <= 1.0), outputs)


class ClassScores(Scores):
    """Scores of class labels, with the classes on the last axis.

    Let p be the probabilities of the classes and e_y the one-hot vector of
    the label y. The gradient of the log-likelihood with respect to the output
    is

        s(y) = e_y - p      for logits                                    (1)
        s(y) = e_y / p_y    for outputs p                                 (2)
    """

    tails = (
        (keras.activations.linear, keras.activations.log_softmax),
        (keras.activations.softmax,),
    )

    def of_outputs(self, outputs: Any) -> Scores:
        """Returns `BinaryScores` if the last axis has one entry, or `self`."""
        if outputs.shape[-1] == 1:
            return BinaryScores(self.from_logits)
        return self

    def options(self) -> dict[str, Any]:
        """Returns `task` and `from_logits`."""
        return {"task": "classification", "from_logits": self.from_logits}

    def curvature(self, z: Any, tail: Any) -> tuple[Any, Any]:
        """Returns `p (1 - p)` and p."""
        largest = ops.one_hot(
            ops.argmax(z, axis=-1), z.shape[-1], dtype=z.dtype
        )
        ratios = ops.exp(z - ops.max(z, axis=-1, keepdims=True))
        others = ops.sum(ratios * (1.0 - largest), axis=-1, keepdims=True)
        p = ratios / (1.0 + others)
        # 1 - p of the largest p would lose all digits.
        rest = ops.where(largest > 0, others / (1.0 + others), 1.0 - p)
        return p * rest, p

    def _link(self, outputs: Any) -> Any:
        return _log(outputs)

    def _link_derivative(self, outputs: Any) -> Any:
        return _reciprocal(outputs)

    def _expected(self, outputs: Any, mask: Any) -> Any:
        """Returns the score of a class times `sqrt(p)` of this class."""
        p = self._probabilities(outputs)
        if not self.from_logits:
            return mask * ops.sqrt(_reciprocal(p))
        # This is 0 at the other positions.
        of_class = ops.sum(mask * p, axis=-1, keepdims=True)
        return ops.sqrt(of_class) * (mask - p)

    def _drawn(self, outputs: Any, seed: Any) -> Any:
        p = self._probabilities(outputs)
        u = 0.5 + 0.5 * uniform(ops.shape(p)[:-1], seed)
        # y is the first class whose cumulative probability reaches u.
        below = ops.cumsum(p, axis=-1) < ops.cast(u, p.dtype)[..., None]
        y = ops.sum(ops.cast(below[..., :-1], "int32"), axis=-1)
        y = ops.one_hot(y, p.shape[-1], dtype=p.dtype)
        return y - p if self.from_logits else y * _reciprocal(p)  # (1), (2)

    def _probabilities(self, outputs: Any) -> Any:
        if self.from_logits:
            return ops.softmax(outputs)
        off = ops.abs(ops.sum(outputs, axis=-1, keepdims=True) - 1.0)
        return _nan_unless((off < SUM_TOLERANCE) & (outputs >= 0.0), outputs)


class PoissonScores(Scores):
    """Scores of Poisson counts, one count for each entry of the output.

    Let r be the rate of the count y. The derivative of the log-likelihood with
    respect to the output is

        s(y) = y / r - 1    for outputs r                                 (1)
        s(y) = y - r        for outputs log r, the logits                 (2)
    """

    tails = (), (keras.activations.exponential,)

    def options(self) -> dict[str, Any]:
        """Returns no options: the compiled loss of the model says all."""
        return {}

    def curvature(self, z: Any, tail: Any) -> tuple[Any, Any]:
        """Returns the rates."""
        return ops.exp(z), None

    def _link(self, outputs: Any) -> Any:
        return _log(outputs)

    def _link_derivative(self, outputs: Any) -> Any:
        return _reciprocal(outputs)

    def _expected(self, outputs: Any, mask: Any) -> Any:
        root = ops.sqrt(self._rates(outputs))
        return mask * (root if self.from_logits else _reciprocal(root))

    def _drawn(self, outputs: Any, seed: Any) -> Any:
        rates = self._rates(outputs)
        score = poisson(rates, seed) - rates
        return score if self.from_logits else score * _reciprocal(rates)

    def _rates(self, outputs: Any) -> Any:
        if self.from_logits:
            return ops.exp(outputs)
        return _nan_unless(outputs >= 0.0, outputs)


def _precise(outputs: Any) -> Any:
    return (
        outputs if outputs.dtype == "float64" else ops.cast(outputs, "float32")
    )


def _log(p: Any) -> Any:
    return ops.log(ops.maximum(p, float(np.finfo("float32").tiny)))


def _reciprocal(values: Any) -> Any:
    """Returns 1 / x, and 0 for x = 0.

    If a probability underflows to 0, its gradient with respect to the weights
    is 0 too. The result 0 then avoids the product of infinity and 0.
    """
    zero = ops.equal(values, 0.0)
    return ops.where(zero, 0.0, 1.0 / ops.where(zero, 1.0, values))


def _nan_unless(valid: Any, values: Any) -> Any:
    """Returns values where they are valid, and NaN elsewhere.

    A graph cannot raise errors. The code outside of the graph checks for NaN.
    """
    return ops.where(valid, values, float("nan"))


def scores_of_loss(loss: Any) -> Scores:
    """Returns the `Scores` of a loss that is a negative log-likelihood."""
    if isinstance(loss, likelihoods.Gaussian):
        return GaussianScores(loss)
    likelihood = None
    function, arguments = loss_function(loss)
    if function not in NO_LIKELIHOOD:
        likelihood = Likelihood.of_loss(loss)
    if likelihood is not None and likelihood.is_of_counts:
        return PoissonScores(from_logits=False)
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


class ScoresOfOutputs:
    """The `Scores` of all outputs of a model, by their losses.

    Given the outputs, the labels of different outputs are independent. So the
    Fisher information of all outputs is the sum of those of each, and a vector
    v_k of one output has zeros for all others.
    """

    def __init__(self, model: keras.Model, loss: Any):
        self._model = model
        self._loss = loss
        losses = keras.tree.flatten(loss)
        if len(losses) > 1 and None in losses:
            raise ValueError(
                "`fit_laplace` needs a loss for each output, because it draws "
                "labels of all outputs. Make a model without the other "
                "outputs: `keras.Model(model.inputs, outputs)`. "
                f"Received: loss={loss!r}"
            )
        self._scores = [scores_of_loss(one) for one in losses]

    @property
    def depends_on_outputs(self) -> bool:
        """Whether an average over the outputs is another matrix."""
        return any(scores.depends_on_outputs for scores in self._scores)

    def options(self) -> dict[str, Any]:
        """Returns the arguments of `keras_bdl.predict` for the loss."""
        if len(self._scores) == 1:
            return self._scores[0].options()
        return {}  # the compiled losses say the same

    def check_validation(self) -> None:
        """Raises an error if only a compiled loss can make predictions."""
        if not self.options():
            raise ValueError(
                '`prior_precision="validation"` needs the Poisson loss, or the '
                "losses of several outputs, in `compile`, so that predictions "
                "have their noise. Compile the model with this loss, and leave "
                f"`loss` out. Received: loss={self._loss!r}"
            )

    def logits(self, outputs: Any) -> list:
        """Returns the logits of each of the flattened outputs."""
        return [one.logits(_precise(f)) for one, f in self.pairs(outputs)]

    def vectors(
        self,
        outputs: Any,
        *,
        samples: int | None,
        seed: Any,
        at: list | None = None,
    ) -> Vectors:
        """Returns K and a function from k < K to a list with a v_k each output.

        The arguments are those of `Scores.vectors`.
        """
        pairs = self.pairs(outputs)
        several = len(pairs) > 1
        parts = [
            one.vectors(
                f,
                samples=samples,
                seed=fold_in(seed, number) if several else seed,
                at=None if at is None else at[number],
            )
            for number, (one, f) in enumerate(pairs)
        ]
        if samples is not None or not several:
            # The products of two outputs have the expectation 0.
            return parts[0][0], lambda k: [score(k) for _, score in parts]

        def vectors(k: Any) -> list:
            found, start = [], 0
            for count, score in parts:
                own = ops.clip(k - start, 0, count - 1)
                is_own = ops.logical_and(k >= start, k < start + count)
                vector = score(own)
                found.append(ops.where(is_own, vector, ops.zeros_like(vector)))
                start += count
            return found

        return sum(count for count, _ in parts), vectors

    def pairs(self, outputs: Any) -> list[tuple[Scores, Any]]:
        """Returns the scores and the tensor of each output."""
        flat = keras.tree.flatten(outputs)
        if len(flat) == 1 and len(self._scores) == 1:
            found = self._scores
        else:
            names = getattr(self._model, "output_names", None)
            losses = per_output("loss", self._loss, outputs, names=names)
            found = [scores_of_loss(one) for one in losses]
        return [
            (scores.of_outputs(output), output)
            for scores, output in zip(found, flat, strict=True)
        ]
