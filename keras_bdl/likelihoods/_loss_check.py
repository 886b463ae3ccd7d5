"""The compiled loss as the negative log-likelihood of the data.

Every method that multiplies the loss by the number N of examples needs the mean
over the batch of one value for each example. With a sum over the batch, the
method would multiply the likelihood by the batch size, too. With a mean over
the labels of an example, the method would divide the likelihood by their
number.
"""

import contextlib
import warnings
import weakref

import keras
from keras import ops

from keras_bdl import _keras
from keras_bdl.likelihoods._implied_noise import averages_labels
from keras_bdl.likelihoods._implied_noise import implied_noise
from keras_bdl.likelihoods._implied_noise import labels_of_value


def check_reductions(owner, losses):
    """Raises an error unless losses are means over the batch.

    Args:
        owner: Name of the class that needs the mean, for the message.
        losses: Losses of Keras, in any form that `compile` accepts.
    """
    for loss in keras.tree.flatten(losses):
        reduction = getattr(loss, "reduction", "mean")
        if reduction not in ("mean", "sum_over_batch_size"):
            raise ValueError(
                f"`loss` must be the mean over the batch for {owner}. Give the "
                'loss `reduction="sum_over_batch_size"`. '
                f"Received: loss={loss.name!r} with reduction={reduction!r}"
            )


def guard_likelihood(owner, model, sizes, observations=None, y_pred=None):
    """Makes the compiled loss of a model a likelihood, now and at every trace.

    The likelihood of an example is the product over its labels, but Keras
    averages a binary cross-entropy and a Poisson loss over them. The value of
    the loss stays that of Keras. For a model with one output, each label
    counts as an observation: the `labels` of `sizes` are set. With several
    outputs, the gradient of the loss is multiplied by the number of labels.

    A sum over the batch raises an error. A loss that implies a certain noise,
    that is not a likelihood, or that averages over positions without
    `observations`, gives a warning, once for each output and `compile`.

    Args:
        owner: Name of the method that uses the loss as a negative
            log-likelihood.
        model: A Keras model. Without a compiled loss, nothing is checked.
        sizes: The `DatasetSize` of each class that uses the loss.
        observations: The argument of `compile`, if the user gave one. Defaults
            to `None`.
        y_pred: The outputs, if the loss of this step was computed before this
            call. Defaults to `None`.
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

    Args:
        compile_loss: The compiled loss of Keras.
        observations: The argument of `compile`, or `None`.

    Attributes:
        labels: The number of labels that count as observations, or `None`: the
            gradient of the loss holds the factor.
    """

    def __init__(self, compile_loss, observations):
        self._reference = weakref.ref(compile_loss)
        self.observations = observations
        self.labels = None
        self._decided = False
        self._sizes = {}

    def use(self, sizes, model):
        """Adds the sizes whose `labels` this object sets."""
        self._sizes.update((id(size), size) for size in sizes)
        outputs = getattr(model, "outputs", None)  # a subclass has none
        losses = keras.tree.flatten(model.loss)
        if outputs and len(outputs) == len(losses) == 1:
            self.labels = labels_of_value(losses[0], outputs[0])
        self._decided |= bool(outputs)
        self._tell()

    def built(self, y_pred):
        """Counts the labels, unless a layer has already read N."""
        pairs = losses_and_outputs(self._reference(), y_pred)
        read = any(size.was_read for size in self._sizes.values())
        if len(pairs) == len(keras.tree.flatten(y_pred)) == 1 and not read:
            ((loss, output),) = pairs
            self.labels = labels_of_value(unguarded(loss), output)
        self._decided = True
        self._tell()

    def count_late(self, owner, y_pred):
        """Counts the labels of a loss whose first value had no guard."""
        self._warn_late(owner, y_pred)
        self.built(y_pred)
        if self.labels is not None:
            return
        for loss, output in losses_and_outputs(self._reference(), y_pred):
            if labels_of_value(unguarded(loss), output) > 1:
                raise ValueError(
                    f"{owner} needs a `keras_bdl.Model` for several outputs, "
                    "one of them with several labels, because the likelihood "
                    "is the product over the labels and Keras averages. "
                    f"Received: loss={loss.name!r} for an output of shape "
                    f"{tuple(output.shape)}"
                )

    def _warn_late(self, owner, y_pred):
        for loss, output in losses_and_outputs(self._reference(), y_pred):
            if isinstance(loss, _OneValueEach) and loss.warns():
                warn_of_noise(owner, loss.loss, output)

    def observed(self, values, loss, output):
        """Returns the values of a loss with the gradient of all labels."""
        labels = labels_of_value(loss, output)
        self._decided = True
        self._tell()
        if labels == 1 or self.labels is not None:
            return values
        # Layers have read N before the number of labels was known, or the
        # outputs differ in it.
        others = (labels - 1) * values
        return values + (others - ops.stop_gradient(others))

    def _tell(self):
        for size in self._sizes.values():
            size.labels = (self.labels or 1) if self._decided else None


def labels_are_open(model):
    """Returns whether only a forward pass shows a number of labels that counts.

    Args:
        model: A Keras model.
    """
    loss = _keras.compile_loss(model)
    if loss is None or loss.built or _ATTRIBUTE not in vars(loss):
        return False
    if getattr(model, "outputs", None):
        return False
    losses = keras.tree.flatten(model.loss)
    return len(losses) == 1 and averages_labels(losses[0])


def labels_as_observations(compile_loss, y_pred):
    """Returns how many labels of an example count as observations.

    The result is 1 if the gradient of the loss holds the number of labels.

    Args:
        compile_loss: The object that `compile` makes from the losses.
        y_pred: The outputs.
    """
    likelihood = vars(compile_loss).get(_ATTRIBUTE)
    if likelihood is not None:
        return likelihood.labels or 1
    if len(keras.tree.flatten(y_pred)) != 1:
        return 1
    ((loss, output),) = losses_and_outputs(compile_loss, y_pred)
    return labels_of_value(unguarded(loss), output)


def losses_and_outputs(compile_loss, y_pred):
    """Returns a pair for each compiled loss: the loss and its output.

    Args:
        compile_loss: The object that `compile` makes from the losses, built.
        y_pred: The outputs.
    """
    return [
        (one.loss, keras.tree.flatten(_at_path(y_pred, one.path))[0])
        for one in _keras.losses_of_outputs(compile_loss)
    ]


def _at_path(nested, path):
    for key in path:
        nested = nested[key]
    return nested


@contextlib.contextmanager
def one_value_each(owner, compile_loss):
    """Returns a context in which a loss must have a value per example.

    Args:
        owner: Name of the class that needs one value per example, for the
            message.
        compile_loss: The compiled loss of Keras, or `None`.

    Yields:
        The compiled loss.
    """
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

    def __init__(self, loss, owner, likelihood):
        super().__init__(
            name=loss.name, reduction=loss.reduction, dtype=loss.dtype
        )
        self.loss = loss
        self._owner = owner
        self._likelihood = likelihood
        self._warned = likelihood is None

    def call(self, y_true, y_pred):
        """Returns the values of the loss."""
        values = self.loss.call(y_true, y_pred)
        output = keras.tree.flatten(y_pred)[0]
        _check_shape(self._owner, self.loss, values, output)
        if self.warns():
            warn_of_noise(self._owner, self.loss, output)
            self._warn_of_positions(values)
        if self._likelihood is None:
            return values
        return self._likelihood.observed(values, self.loss, output)

    def warns(self):
        """Returns whether no warning was due before, and is due now."""
        first, self._warned = not self._warned, True
        return first

    def _warn_of_positions(self, values):
        if len(values.shape) < 2 or self._likelihood.observations is not None:
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


def warn_of_noise(owner, loss, output):
    """Warns of a loss that implies a certain noise or is no likelihood."""
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


def _check_shape(owner, loss, values, output):
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


def _guard(compile_loss, owner, likelihood):
    """Replaces the losses by guards that check them; returns new guards."""
    guards: list[_OneValueEach] = []

    def put():
        losses = _keras.losses_of_outputs(compile_loss)
        losses[:] = [
            one._replace(loss=_guarded(one.loss, owner, likelihood, guards))
            for one in losses
        ]

    if compile_loss.built:
        put()
    elif not _will_be_guarded(compile_loss):
        build = compile_loss.build

        def build_and_put(y_true, y_pred):
            build(y_true, y_pred)
            if likelihood is not None:
                likelihood.built(y_pred)
            put()

        compile_loss.build = build_and_put
    return guards


def _will_be_guarded(compile_loss):
    return not compile_loss.built and "build" in vars(compile_loss)


def _guarded(loss, owner, likelihood, guards):
    # The guard checks in `call`, which a loss with its own `__call__` may skip.
    own_call = type(loss).__call__ is not keras.losses.Loss.__call__
    if own_call or isinstance(loss, _OneValueEach):
        return loss
    guards.append(_OneValueEach(loss, owner, likelihood))
    return guards[-1]


def unguarded(loss):
    """Returns the loss of one output without its guard."""
    return loss.loss if isinstance(loss, _OneValueEach) else loss


def _unguard(compile_loss, guards):
    if not compile_loss.built:
        vars(compile_loss).pop("build", None)
        return
    losses = _keras.losses_of_outputs(compile_loss)
    losses[:] = [
        one._replace(loss=one.loss.loss) if one.loss in guards else one
        for one in losses
    ]
