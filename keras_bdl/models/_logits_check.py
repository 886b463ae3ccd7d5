"""A warning if the loss expects probabilities and the model returns logits.

Keras clips such outputs to [0, 1] and trains on, so a forgotten
`from_logits=True` shows in no error.
"""

import warnings
from typing import Any

import keras
from keras import ops

from keras_bdl import _keras
from keras_bdl.likelihoods._implied_noise import loss_function
from keras_bdl.likelihoods._loss_check import losses_and_outputs
from keras_bdl.likelihoods._loss_check import unguarded
from keras_bdl.prediction._outputs import Likelihood

# Half precision rounds probabilities: 2^-6 is the spacing of bfloat16 near 2.
_TOLERANCE = 2.0**-6


class LogitsCheck:
    """Counts outputs outside [0, 1] that the loss takes for probabilities.

    The training step counts in the graph, and a callback reads the count.

    Args:
        model: A model that `compile` has just given its loss.
    """

    def __init__(self, model: keras.Model):
        self._count: Any = None
        losses = keras.tree.flatten(model.loss)
        if any(map(_expects_probabilities, losses)):
            with model.distribute_strategy.scope():
                # Keras does not track variables of this plain object, so the
                # variable does not become a weight of the model.
                self._count = keras.Variable(
                    0.0,
                    dtype="float32",
                    trainable=False,
                    autocast=False,
                    # Each replica counts alone.
                    synchronization="on_read",
                    aggregation="sum",
                    name="logits_seen",
                )

    def observe(self, model: keras.Model, y_pred: Any) -> None:
        """Counts the outputs of a batch with values outside [0, 1].

        Args:
            model: The compiled model.
            y_pred: Its outputs.
        """
        compiled = _keras.compile_loss(model)
        if self._count is None or not compiled.built:
            return
        for loss, output in losses_and_outputs(compiled, y_pred):
            if _expects_probabilities(unguarded(loss)):
                below, above = ops.min(output), ops.max(output)
                outside = ops.logical_or(
                    below < -_TOLERANCE, above > 1.0 + _TOLERANCE
                )
                self._count.assign_add(ops.cast(outside, "float32"))

    @property
    def seen(self) -> bool:
        """Whether a batch had such values."""
        return self._count is not None and float(ops.sum(self._count.value)) > 0


def _expects_probabilities(loss):
    if loss is None or loss_function(loss)[1].get("axis", -1) != -1:
        return False
    likelihood = Likelihood.of_loss(loss)
    return (
        likelihood is not None
        and likelihood.task != "regression"
        and not likelihood.from_logits
    )


class LogitsWarning(keras.callbacks.Callback):
    """Warns once, after the first batch or an epoch, of a `LogitsCheck`."""

    # Keras may run these hooks asynchronously: no step waits for them.
    async_safe = True

    def __init__(self, check: LogitsCheck):
        super().__init__()
        self._check = check
        self._warned = False

    def on_train_batch_end(self, batch, logs=None):
        """Looks at the first batch."""
        if batch == 0:
            self._warn()

    def on_epoch_end(self, epoch, logs=None):
        """Looks at all batches so far."""
        self._warn()

    def _warn(self):
        if self._warned or not self._check.seen:
            return
        self._warned = True
        warnings.warn(
            "The loss expects probabilities, but the model returns values "
            "outside [0, 1]. If these values are logits, compile with "
            "`from_logits=True`, as in "
            "`keras.losses.SparseCategoricalCrossentropy(from_logits=True)`. "
            "If not, end the model with a softmax or a sigmoid. Received: "
            f"loss={self.model.loss!r}",
            stacklevel=2,
        )
