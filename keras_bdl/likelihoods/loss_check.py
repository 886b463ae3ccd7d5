"""Check that a compiled loss is the mean of one value for each example.

Every method that multiplies the loss by the number N of examples needs such a
loss. With a sum over the batch, the method would multiply the likelihood by the
batch size, too.
"""

import contextlib
import warnings

import keras

from keras_bdl import _keras
from keras_bdl.likelihoods.implied_noise import implied_noise


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


def guard_likelihood(owner, model):
    """Checks the compiled loss of a model, now and at every trace.

    A sum over the batch raises an error. A loss that implies a certain noise,
    or is not a likelihood, gives a warning, once for each output and `compile`.

    Args:
        owner: Name of the method that uses the loss as a negative
            log-likelihood.
        model: A Keras model. Without a compiled loss, nothing is checked.
    """
    loss = _keras.compile_loss(model)
    if loss is not None:
        check_reductions(owner, model.loss)
        _guard(loss, owner, warns=True)


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
    guards = _guard(compile_loss, owner, warns=False)
    try:
        yield compile_loss
    finally:
        _unguard(compile_loss, guards)


class _OneValueEach(keras.losses.Loss):
    """A loss that raises an error unless each example has its own value."""

    def __init__(self, loss, owner, warns):
        super().__init__(
            name=loss.name, reduction=loss.reduction, dtype=loss.dtype
        )
        self.loss = loss
        self._owner = owner
        self._warns = warns

    def call(self, y_true, y_pred):
        """Returns the values of the loss."""
        values = self.loss.call(y_true, y_pred)
        output = keras.tree.flatten(y_pred)[0]
        _check_shape(self._owner, self.loss, values, output)
        if self._warns:
            self._warns = False
            self._warn(output)
        return values

    def _warn(self, output):
        noise = implied_noise(self.loss, output)
        if noise is not None:
            warnings.warn(
                "The loss is taken for a negative log-likelihood by "
                f"{self._owner}, and `{self.loss.name}` {noise}. Use "
                "`keras_bdl.likelihoods.Gaussian(noise_stddev=...)` with the "
                "noise of your targets, `Gaussian()` if the network predicts "
                "the noise, or a cross-entropy for classes. "
                f"Received: loss={self.loss.name!r}",
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


def _guard(compile_loss, owner, warns):
    """Replaces the losses by guards that check them; returns new guards."""
    guards: list[_OneValueEach] = []

    def put():
        losses = _keras.losses_of_outputs(compile_loss)
        losses[:] = [
            one._replace(loss=_guarded(one.loss, owner, warns, guards))
            for one in losses
        ]

    if compile_loss.built:
        put()
    elif not _will_be_guarded(compile_loss):
        build = compile_loss.build

        def build_and_put(y_true, y_pred):
            build(y_true, y_pred)
            put()

        compile_loss.build = build_and_put
    return guards


def _will_be_guarded(compile_loss):
    return not compile_loss.built and "build" in vars(compile_loss)


def _guarded(loss, owner, warns, guards):
    # The guard checks in `call`, which a loss with its own `__call__` may skip.
    own_call = type(loss).__call__ is not keras.losses.Loss.__call__
    if own_call or isinstance(loss, _OneValueEach):
        return loss
    guards.append(_OneValueEach(loss, owner, warns))
    return guards[-1]


def _unguard(compile_loss, guards):
    if not compile_loss.built:
        vars(compile_loss).pop("build", None)
        return
    losses = _keras.losses_of_outputs(compile_loss)
    losses[:] = [
        one._replace(loss=one.loss.loss) if one.loss in guards else one
        for one in losses
    ]
