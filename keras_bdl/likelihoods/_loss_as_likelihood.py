"""The compiled loss as the negative log-likelihood of the data.

Bayesian methods take `exp(-loss)` of an example as the density of its target,
up to a constant. Every method that multiplies the loss by the number N of
examples needs the mean over the batch of one value for each example. With a sum
over the batch, the method would multiply the likelihood by the batch size, too.
With a mean over the labels of an example, the method would divide the
likelihood by their number. Guards around the losses check these at every trace.
"""

import contextlib
import functools
import math
import warnings
import weakref
from collections.abc import Iterable
from collections.abc import Iterator
from typing import Any

import keras
from keras import ops

from keras_bdl import _keras

NO_LIKELIHOOD = (
    keras.losses.binary_focal_crossentropy,
    keras.losses.categorical_focal_crossentropy,
    keras.losses.categorical_generalized_cross_entropy,
    keras.losses.categorical_hinge,
    keras.losses.circle,
    keras.losses.dice,
    keras.losses.hinge,
    keras.losses.mean_absolute_percentage_error,
    keras.losses.squared_hinge,
    keras.losses.tversky,
)
# Negative log-likelihoods of one observation, up to a constant.
_LIKELIHOODS = (
    keras.losses.binary_crossentropy,
    keras.losses.categorical_crossentropy,
    keras.losses.ctc,
    keras.losses.kl_divergence,
    keras.losses.poisson,
    keras.losses.sparse_categorical_crossentropy,
)
# Those that Keras averages over the labels or counts of an example, although
# the likelihood of the example is the product.
_AVERAGED = (keras.losses.binary_crossentropy, keras.losses.poisson)


def loss_function(loss: Any) -> tuple[Any, dict]:
    """Returns the function of a loss of one output, and its arguments.

    The function is `None` for a subclass of `keras.losses.Loss` with its own
    `call`. The arguments are empty for a loss that is not part of Keras.
    """
    if isinstance(loss, str) and loss.lower() in ("crossentropy", "ce"):
        # Keras chooses the binary loss by the shape of the output.
        return keras.losses.categorical_crossentropy, {}
    loss = keras.losses.get(loss)
    if isinstance(loss, functools.partial):
        return loss.func, loss.keywords
    if isinstance(loss, keras.losses.Loss):
        function = getattr(loss, "fn", None)
        of_keras = getattr(function, "__module__", "").startswith("keras.")
        # Keras would put the source of another function into the config.
        return function, loss.get_config() if of_keras else {}
    return loss, {}


def ignored_class(loss: Any) -> int | None:
    """Returns the class that a loss ignores, or `None`."""
    if loss is None or isinstance(loss, str):
        return None
    return loss_function(loss)[1].get("ignore_class")


def labels_of_value(loss: Any, y_pred: Any) -> int:
    """Returns how many labels one value of a loss averages.

    A binary cross-entropy of D labels is `1/D sum_d -log p(y_d)`, and the
    result is D. The result is 1 for a loss that is a sum over its labels, and
    for a loss whose average `implied_noise` describes.
    """
    function, arguments = loss_function(loss)
    if function not in _AVERAGED or len(y_pred.shape) < 2:
        return 1
    labels = y_pred.shape[arguments.get("axis", -1)]
    if labels is None:
        raise ValueError(
            "The number of labels of an example must be fixed, because the "
            "likelihood is the product over the labels. Give the output a "
            "known size on its last axis. "
            f"Received: an output of shape {tuple(y_pred.shape)}"
        )
    return labels


def _gaussian(columns: int) -> str:
    # (1/D) sum_d e_d^2 = sum_d e_d^2 / (2 s^2) at s^2 = D / 2.
    stddev = math.sqrt(columns / 2)
    return f"Gaussian noise with a standard deviation of {stddev:.3g}"


# The noise that a loss of Keras implies, which averages over the D columns of
# a target.
_NOISES = {
    keras.losses.mean_squared_error: _gaussian,
    keras.losses.mean_squared_logarithmic_error: lambda columns: (
        f"{_gaussian(columns)}, of log(1 + target)"
    ),
    keras.losses.mean_absolute_error: lambda columns: (
        f"Laplace noise with a scale of {columns}"
    ),
    # (1/D) e^2 / 2 = e^2 / (2 s^2) at s^2 = D, near 0.
    keras.losses.huber: lambda columns: (
        "noise that is Gaussian with a standard deviation of "
        f"{math.sqrt(columns):.3g} near zero and has exponential tails"
    ),
    keras.losses.log_cosh: lambda columns: (
        f"noise with a density proportional to cosh(error)^(-1/{columns})"
    ),
    keras.losses.cosine_similarity: lambda columns: (
        "von Mises-Fisher noise of directions with a concentration of 1"
    ),
}


def implied_noise(loss: Any, y_pred: Any) -> str | None:
    """Returns a phrase about the noise that a loss implies.

    The result is `None` for a cross-entropy, for the Poisson loss of counts,
    for a loss with a method `moments`, such as
    `keras_bdl.likelihoods.Gaussian`, and for a loss whose attribute
    `is_likelihood` is true.
    """
    function, _ = loss_function(loss)
    if function in NO_LIKELIHOOD:
        return "is no negative log-likelihood of any noise"
    if function in _NOISES:
        columns = y_pred.shape[-1] if len(y_pred.shape) > 1 else 1
        return f"implies {_NOISES[function](columns)}"
    if function in _LIKELIHOODS or any(
        hasattr(one, "moments") or getattr(one, "is_likelihood", False)
        for one in (loss, getattr(loss, "fn", None))
    ):
        return None
    return (
        "is not known to be one. If the loss is a negative log-likelihood, set "
        "its attribute `is_likelihood = True`. If it is not, no posterior "
        "belongs to it"
    )


def check_reductions(owner: str, losses: Any) -> None:
    """Raises an error unless nested losses are means over the batch."""
    for loss in keras.tree.flatten(losses):
        reduction = getattr(loss, "reduction", "mean")
        if reduction not in ("mean", "sum_over_batch_size"):
            raise ValueError(
                f"`loss` must be the mean over the batch for {owner}. Give the "
                'loss `reduction="sum_over_batch_size"`. '
                f"Received: loss={loss.name!r} with reduction={reduction!r}"
            )


def guard_likelihood(
    owner: str,
    model: keras.Model,
    sizes: Iterable[Any],
    observations: str | None = None,
    y_pred: Any = None,
) -> None:
    """Makes the compiled loss of a model a likelihood, now and at every trace.

    The likelihood of an example is the product over its labels, but Keras
    averages a binary cross-entropy and a Poisson loss over them. The value of
    the loss stays that of Keras. For a model with one output, each label
    counts as an observation: the `labels` of `sizes`, the `DatasetSize` of each
    class that uses the loss, are set. With several outputs, the gradient of the
    loss is multiplied by the number of labels.

    A sum over the batch raises an error. A loss that implies a certain noise,
    that is not a likelihood, or that averages over positions without
    `observations`, gives a warning, once for each output and `compile`.

    `y_pred` are the outputs, if the loss of this step was computed before.
    """
    loss = _keras.compile_loss(model)
    if loss is None:
        return
    check_reductions(owner, model.loss)
    likelihood = vars(loss).get(_ATTRIBUTE)
    is_late = likelihood is None and loss.built and y_pred is not None
    if likelihood is None:
        likelihood = _Likelihood(loss, observations)
        vars(loss)[_ATTRIBUTE] = likelihood
        if not loss.built or is_late:  # nothing of this trace has read N
            for size in sizes:
                size.was_read = False
        _guard(loss, owner, likelihood)
    likelihood.use(sizes, model)
    if is_late:
        likelihood.count_late(owner, y_pred)


# Name of the attribute of a compiled loss with its `_Likelihood`.
_ATTRIBUTE = "_keras_bdl_likelihood"


class _Likelihood:
    """The number of labels in the compiled loss of a model.

    `labels` is the number of labels that count as observations, or `None`: the
    gradient of the loss holds the factor.
    """

    def __init__(self, compile_loss: Any, observations: str | None):
        self._reference = weakref.ref(compile_loss)
        self.observations = observations
        self.labels: int | None = None
        self._decided = False
        self._sizes: dict[int, Any] = {}

    def use(self, sizes: Iterable[Any], model: keras.Model) -> None:
        """Adds the sizes whose `labels` this object sets."""
        self._sizes.update((id(size), size) for size in sizes)
        outputs = getattr(model, "outputs", None)  # a subclass has none
        losses = keras.tree.flatten(model.loss)
        if outputs and len(outputs) == len(losses) == 1:
            self.labels = labels_of_value(losses[0], outputs[0])
        self._decided |= bool(outputs)
        self._set_labels()

    def built(self, y_pred: Any) -> None:
        """Counts the labels, unless a layer has already read N."""
        pairs = losses_and_outputs(self._reference(), y_pred)
        read = any(size.was_read for size in self._sizes.values())
        if len(pairs) == len(keras.tree.flatten(y_pred)) == 1 and not read:
            ((loss, output),) = pairs
            self.labels = labels_of_value(unguarded(loss), output)
        self._decided = True
        self._set_labels()

    def count_late(self, owner: str, y_pred: Any) -> None:
        """Counts the labels of a loss whose first value had no guard."""
        pairs = losses_and_outputs(self._reference(), y_pred)
        for loss, output in pairs:
            if isinstance(loss, _OneValueEach) and loss.warns():
                _warn_of_noise(owner, loss.loss, output)
        self.built(y_pred)
        if self.labels is not None:
            return
        for loss, output in pairs:
            if labels_of_value(unguarded(loss), output) > 1:
                raise ValueError(
                    f"{owner} needs a `keras_bdl.Model` for several outputs, "
                    "one of them with several labels, because the likelihood "
                    "is the product over the labels and Keras averages. "
                    f"Received: loss={loss.name!r} for an output of shape "
                    f"{tuple(output.shape)}"
                )

    def observed(self, values: Any, loss: Any, output: Any) -> Any:
        """Returns the values of a loss with the gradient of all labels."""
        labels = labels_of_value(loss, output)
        self._decided = True
        self._set_labels()
        if labels == 1 or self.labels is not None:
            return values
        # Layers have read N before the number of labels was known, or the
        # outputs differ in it.
        others = (labels - 1) * values
        return values + (others - ops.stop_gradient(others))

    def _set_labels(self) -> None:
        for size in self._sizes.values():
            size.labels = (self.labels or 1) if self._decided else None


def labels_are_open(model: keras.Model) -> bool:
    """Returns whether only a forward pass shows a number of labels."""
    loss = _keras.compile_loss(model)
    if loss is None or loss.built or _ATTRIBUTE not in vars(loss):
        return False
    if getattr(model, "outputs", None):
        return False
    losses = keras.tree.flatten(model.loss)
    return (
        len(losses) == 1
        and losses[0] is not None
        and loss_function(losses[0])[0] in _AVERAGED
    )


def labels_as_observations(compile_loss: Any, y_pred: Any) -> int:
    """Returns how many labels of an example count as observations.

    The result is 1 if the gradient of the loss holds the number of labels.
    """
    likelihood = vars(compile_loss).get(_ATTRIBUTE)
    if likelihood is not None:
        return likelihood.labels or 1
    if len(keras.tree.flatten(y_pred)) != 1:
        return 1
    ((loss, output),) = losses_and_outputs(compile_loss, y_pred)
    return labels_of_value(unguarded(loss), output)


def losses_and_outputs(compile_loss: Any, y_pred: Any) -> list[tuple[Any, Any]]:
    """Returns each loss in a built result of `compile`, and its output."""
    pairs = []
    for one in _keras.losses_of_outputs(compile_loss):
        output = y_pred
        for key in one.path:
            output = output[key]
        pairs.append((one.loss, keras.tree.flatten(output)[0]))
    return pairs


@contextlib.contextmanager
def one_value_each(owner: str, compile_loss: Any) -> Iterator[Any]:
    """Yields a compiled loss that must have one value for each example."""
    # Without a compiled loss, only layers have losses.
    if compile_loss is None or _will_be_guarded(compile_loss):
        yield compile_loss
        return
    guards = _guard(compile_loss, owner, likelihood=None)
    try:
        yield compile_loss
    finally:
        _unguard(compile_loss, guards)


class _OneValueEach(keras.losses.Loss):
    """A loss that raises an error unless each example has its own value."""

    def __init__(
        self,
        loss: keras.losses.Loss,
        owner: str,
        likelihood: _Likelihood | None,
    ):
        super().__init__(
            name=loss.name, reduction=loss.reduction, dtype=loss.dtype
        )
        self.loss = loss
        self._owner = owner
        self._likelihood = likelihood
        self._warned = likelihood is None

    def call(self, y_true: Any, y_pred: Any) -> Any:
        """Returns the values of the loss."""
        values = self.loss.call(y_true, y_pred)
        output = keras.tree.flatten(y_pred)[0]
        _check_shape(self._owner, self.loss, values, output)
        if self.warns():
            _warn_of_noise(self._owner, self.loss, output)
            self._warn_of_positions(values)
        if self._likelihood is None:
            return values
        return self._likelihood.observed(values, self.loss, output)

    def warns(self) -> bool:
        """Returns whether no warning was due before, and is due now."""
        first, self._warned = not self._warned, True
        return first

    def _warn_of_positions(self, values: Any) -> None:
        given = self._likelihood and self._likelihood.observations
        if len(values.shape) < 2 or given is not None:
            return
        warnings.warn(
            "The loss has a value for each position of an example, and "
            f"{self._owner} takes their mean for the negative log-likelihood "
            "of the example. The posterior is then wider than for independent "
            "positions. Compile a `keras_bdl.Model` with "
            '`observations="positions"` for the product over the positions, '
            'or with `observations="examples"` to keep the mean. '
            f"Received: values of shape {tuple(values.shape)}, "
            "observations=None",
            stacklevel=2,
        )


def _warn_of_noise(owner: str, loss: Any, output: Any) -> None:
    noise = implied_noise(loss, output)
    if noise is not None:
        warnings.warn(
            "The loss is taken for a negative log-likelihood by "
            f"{owner}, and `{loss.name}` {noise}. Use "
            "`keras_bdl.likelihoods.Gaussian(noise_stddev=...)` with the "
            "noise of your targets, `Gaussian()` if the network predicts "
            "the noise, or a cross-entropy for classes. "
            f"Received: loss={loss.name!r}",
            stacklevel=2,
        )


def _check_shape(owner: str, loss: Any, values: Any, output: Any) -> None:
    shape = tuple(getattr(values, "shape", ()))
    examples = output.shape[0] if len(output.shape) else None
    # If the batch size is unknown, a static size belongs to another axis.
    if shape and (
        shape[0] is None
        or (examples is not None and shape[0] % max(examples, 1) == 0)
    ):
        return
    advice = (
        "Leave out the sum or the mean over the batch, for example with "
        "`axis=-1` in `keras.ops.mean`"
    )
    if len(output.shape) == 1 and not shape:
        # Losses of Keras average over the last axis, even if it is the only
        # axis.
        advice = (
            "Give the outputs a second axis of size 1, as `Dense(1)` does, "
            "without a `Flatten` or `Reshape` after it"
        )
    raise ValueError(
        f"`loss` must return one value for each example for {owner}, which "
        f"computes the mean. {advice}. Received: loss={loss.name!r}, which "
        f"returns values of shape {shape} for outputs of shape "
        f"{tuple(output.shape)}"
    )


def _guard(
    compile_loss: Any, owner: str, likelihood: _Likelihood | None
) -> list[_OneValueEach]:
    """Replaces the losses by guards that check them; returns new guards."""
    guards: list[_OneValueEach] = []

    def guarded(loss: Any) -> Any:
        # The guard checks in `call`, which a loss with its own `__call__` may
        # skip.
        own_call = type(loss).__call__ is not keras.losses.Loss.__call__
        if own_call or isinstance(loss, _OneValueEach):
            return loss
        guards.append(_OneValueEach(loss, owner, likelihood))
        return guards[-1]

    def put() -> None:
        losses = _keras.losses_of_outputs(compile_loss)
        losses[:] = [one._replace(loss=guarded(one.loss)) for one in losses]

    if compile_loss.built:
        put()
    elif not _will_be_guarded(compile_loss):
        build = compile_loss.build

        def build_and_put(y_true: Any, y_pred: Any) -> None:
            build(y_true, y_pred)
            if likelihood is not None:
                likelihood.built(y_pred)
            put()

        compile_loss.build = build_and_put
    return guards


def _will_be_guarded(compile_loss: Any) -> bool:
    return not compile_loss.built and "build" in vars(compile_loss)


def unguarded(loss: Any) -> Any:
    """Returns the loss of one output without its guard."""
    return loss.loss if isinstance(loss, _OneValueEach) else loss


def _unguard(compile_loss: Any, guards: list[_OneValueEach]) -> None:
    if not compile_loss.built:
        vars(compile_loss).pop("build", None)
        return
    losses = _keras.losses_of_outputs(compile_loss)
    losses[:] = [
        one._replace(loss=one.loss.loss) if one.loss in guards else one
        for one in losses
    ]
