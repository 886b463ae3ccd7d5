"""Warnings of a training that is wrong, of endless data and a plain export."""

import functools
import inspect
import math
import warnings

import keras

from keras_bdl import _keras
from keras_bdl._inner_optimizer import inner_optimizer
from keras_bdl._protocols import DrawsFunctions
from keras_bdl.layers import MCDropout
from keras_bdl.layers._variational import Variational
from keras_bdl.models._checked_trainer import DistributedTrainer
from keras_bdl.models._logits_check import LogitsCheck
from keras_bdl.models._logits_check import LogitsWarning
from keras_bdl.posteriors._posterior import holds_sample as holds_draw

# A loss that has grown by this factor never recovers.
MOST_GROWTH = 1e4


class WarningTrainer(DistributedTrainer):
    """Warns if the loss diverges or gets logits, and of plain exports.

    Warns also if N had to be computed from `steps_per_epoch`.
    """

    objective = None
    _logits_check: LogitsCheck
    _warned_of_endless_data = False

    def compute_metrics(self, x, y, y_pred, sample_weight=None):
        """Updates the metrics, and looks for logits in the outputs."""
        self._logits_check.observe(self, y_pred)
        return super().compute_metrics(x, y, y_pred, sample_weight)

    @functools.wraps(keras.Model.fit)
    def fit(self, *args, **kwargs):
        """Trains the model, and warns once if the loss diverges."""
        call = inspect.signature(keras.Model.fit).bind(self, *args, **kwargs)
        given = call.arguments.get("callbacks")
        # A `CallbackList` of the user takes no further callback.
        if not isinstance(given, keras.callbacks.CallbackList):
            given = [] if given is None else keras.tree.flatten(given)
            call.arguments["callbacks"] = [
                *given,
                DivergenceWarning(),
                LogitsWarning(self._logits_check),
            ]
        return super().fit(*call.args[1:], **call.kwargs)

    @functools.wraps(keras.Model.export)
    def export(self, *args, **kwargs):
        """Exports the network, and warns that it has no posterior.

        Within `posterior.sampled(model, seed)`, the sample is exported without
        a warning.
        """
        owners = [self.objective, inner_optimizer(self)]
        owners = [
            owner for owner in owners if isinstance(owner, DrawsFunctions)
        ]
        layers = [
            layer
            for layer in _keras.all_layers(self)
            if isinstance(layer, (Variational, MCDropout))
        ]
        found = {type(owner).__name__: None for owner in (*owners, *layers)}
        if found and not holds_draw(self):
            warnings.warn(
                "`export` writes one network with the present weights, which "
                "are the posterior mean after training. Its predictions have "
                "no uncertainty. For an ensemble, export one network for each "
                "of several seeds within "
                "`with posterior.sampled(model, seed):`, and average their "
                f"predictions. Received: a posterior in {', '.join(found)}",
                stacklevel=2,
            )
        return super().export(*args, **kwargs)

    def warn_of_endless_data(self, examples: int) -> None:
        """Warns once that N was computed from `steps_per_epoch`.

        Args:
            examples: Number of examples in these steps.
        """
        if self._warned_of_endless_data:
            return
        self._warned_of_endless_data = True
        warnings.warn(
            "The data has no end, so the size of the training set is taken "
            "to be batch size x `steps_per_epoch`. Give `dataset_size` if an "
            "epoch is not one pass over the training set. "
            f"Received: data of {examples} examples per epoch",
            stacklevel=4,
        )


class DivergenceWarning(keras.callbacks.Callback):
    """Warns once, at the end of an epoch, if the loss diverges.

    The loss must stay finite, and below `MOST_GROWTH` times its value in the
    first steps. If the loss contains a KL, the callback uses `nll` instead:
    annealing raises the KL term during training.
    """

    # Keras may run these hooks asynchronously: no step waits for them.
    async_safe = True

    def on_train_begin(self, logs=None):
        """Removes the state of an earlier training."""
        self._first, self._warned, self._epochs = None, False, 0

    def on_train_batch_end(self, batch, logs=None):
        """Keeps the loss of the first steps."""
        if self._first is None:
            loss = _loss(logs)
            self._first = loss if math.isfinite(loss) else None

    def on_epoch_end(self, epoch, logs=None):
        """Warns if the loss of the epoch is too high."""
        self._epochs += 1
        loss = _loss(logs)
        # At least 1, as the first loss may be near zero.
        first = self._first or 0.0
        most = MOST_GROWTH * max(abs(first), 1.0)
        small = math.isfinite(loss) and loss < most
        if self._warned or small or self._looks_for_scale():
            return
        self._warned = True
        warnings.warn(
            "The training diverges, so weights and posterior are meaningless. "
            "Make `learning_rate` smaller and train a new model. Received: a "
            f"loss of {loss:.3g} in epoch {epoch + 1}, after {first:.3g} in "
            "the first steps, with optimizer="
            f"{type(inner_optimizer(self.model)).__name__}",
            stacklevel=2,
        )

    def _looks_for_scale(self):
        # In the first epoch, loss scaling may skip steps that overflow in half
        # precision.
        scales = keras.optimizers.LossScaleOptimizer
        return self._epochs == 1 and isinstance(self.model.optimizer, scales)


def _loss(logs):
    """Returns the loss in logs, or 0 if a custom train step returns none."""
    logs = logs or {}
    try:
        return float(logs.get("nll", logs.get("loss")))
    except (TypeError, ValueError):  # `None`, a vector or a text
        return 0.0
