"""The loss whose per-example gradients are computed."""

from typing import Any

import keras
from keras import ops

from keras_bdl import _keras
from keras_bdl._aliases import Loss
from keras_bdl._backend import num_replicas
from keras_bdl.likelihoods._loss_as_likelihood import check_reductions
from keras_bdl.likelihoods._loss_as_likelihood import ignored_class
from keras_bdl.likelihoods._loss_as_likelihood import labels_as_observations
from keras_bdl.likelihoods._loss_as_likelihood import labels_of_value
from keras_bdl.likelihoods._loss_as_likelihood import losses_and_outputs
from keras_bdl.likelihoods._loss_as_likelihood import one_value_each
from keras_bdl.likelihoods._loss_as_likelihood import unguarded

_OWNER = "per-example gradients"


class Losses:
    """Splits the loss of a model into the data term and the penalties.

    `loss` may replace the loss of the model, in any form that `compile` takes.
    """

    def __init__(self, model: keras.Model, loss: Loss | None = None):
        self._model = model
        self._judge = model
        if loss is not None:
            # An empty model compiles the loss.
            self._judge = keras.Model()
            self._judge.compile(loss=loss)
        elif not model.compiled:
            raise ValueError(
                "Per-example gradients need a loss. Compile the model with a "
                "loss, or give `loss`. "
                f"Received: model={model.name!r}, which is not compiled"
            )
        check_reductions(_OWNER, self._judge.loss)

    def total(self, data: tuple, y_pred: Any, *, training: bool) -> Any:
        """Returns the whole loss, equal to `compute_loss` of the model."""
        x, y, sample_weight = data
        with one_value_each(_OWNER, _keras.compile_loss(self._judge)):
            loss = _keras.compute_loss(
                self._judge, x, y, y_pred, sample_weight, training=training
            )
        if self._judge is not self._model:
            loss = loss + self._share(self._model.losses)
        return loss

    def of_data(self, y: Any, y_pred: Any, sample_weight: Any) -> Any:
        """Returns the mean loss of the data without penalties."""
        with one_value_each(_OWNER, _keras.compile_loss(self._judge)) as loss:
            return loss(y, y_pred, sample_weight)

    def of_observations(self, y: Any, y_pred: Any, weight: Any) -> Any:
        """Returns the mean negative log-likelihood of the examples.

        Keras averages some losses over the labels of an example; the
        likelihood of the example is the product.
        """
        # Builds the losses, and checks that each example has its own value.
        self.of_data(y, y_pred, None)
        compiled = _keras.compile_loss(self._judge)
        targets = keras.tree.pack_sequence_as(y_pred, self._flat(y, y_pred))
        total = 0.0
        for (loss, output), (_, target) in zip(
            losses_and_outputs(compiled, y_pred),
            losses_and_outputs(compiled, targets),
            strict=True,
        ):
            # Keras requires one axis for each axis of the loss.
            axes = [1] * (len(output.shape) - 2)
            mean = loss(target, output, ops.reshape(weight, [-1, *axes]))
            total += labels_of_value(unguarded(loss), output) * mean
        return total

    def _flat(self, y: Any, y_pred: Any) -> list:
        """Returns the targets in the order of the flattened outputs."""
        if isinstance(y, dict) and not isinstance(y_pred, dict):
            y = [y[name] for name in self._model.output_names]
        return keras.tree.flatten(y)

    def counted(self, y: Any) -> Any:
        """Returns whether the loss counts each label, or `None` if all."""
        losses = keras.tree.flatten(self._judge.loss)
        ignored = ignored_class(losses[0]) if len(losses) == 1 else None
        if ignored is None:
            return None
        return ops.not_equal(ops.cast(y, "int64"), ignored)

    def labels(self, y_pred: Any) -> int:
        """Returns how many labels one value of the loss averages.

        The result is 1 for several outputs, whose gradients hold this factor.
        """
        return labels_as_observations(_keras.compile_loss(self._judge), y_pred)

    def of_outputs(self) -> Any:
        """Returns the penalties in the loss that depend on outputs of layers.

        Call this method after `total`, in the same scope. The result is `None`
        for a model without such penalties.
        """
        # `model.losses` ends with the regularizers of weights.
        regularized = [
            v for v in self._model.trainable_variables if v.regularizer
        ]
        losses = self._model.losses
        added = losses[: len(losses) - len(regularized)]
        return self._share(added) if added else None

    @staticmethod
    def _share(losses: list) -> Any:
        """Returns the sum of the penalties divided by the number of replicas.

        Keras adds this number to the loss on each replica.
        """
        return sum(ops.sum(loss) for loss in losses) / num_replicas()
