"""The loss that per-example gradients are taken of."""

import keras
import tensorflow as tf


class Losses:
    """The loss of a model, and what in it is not of the data.

    Args:
        model: A Keras model; compiled, unless `loss` is given.
        loss: A loss of Keras, by name or as an object, or a nest of them as
            `compile` takes it; `None` for that of the model.
    """

    def __init__(self, model, loss=None):
        self._model = model
        self._judge = model
        if loss is not None:
            # A model without layers: it has what `compile` makes of a loss.
            self._judge = keras.Model()
            self._judge.compile(loss=loss)
        elif not model.compiled:
            raise ValueError(
                "`model` must be compiled with a loss, or `loss` be given. "
                f"Received: model={model.name!r}, which is not compiled"
            )
        check_reductions("Per-example gradients", self._judge.loss)

    def total(self, x, y, y_pred, sample_weight, training):
        """Returns the whole loss, as `compute_loss` of the model.

        Args:
            x: The inputs.
            y: The targets.
            y_pred: The outputs.
            sample_weight: The weights of the examples.
            training: Whether the outputs are those of training.
        """
        loss = self._judge._compute_loss(
            x, y, y_pred, sample_weight, training=training
        )
        if self._judge is not self._model:
            loss = loss + self._share(self._model.losses)
        return loss

    def of_data(self, y, y_pred, sample_weight):
        """Returns the mean loss of the data, without penalties.

        Args:
            y: The targets.
            y_pred: The outputs.
            sample_weight: The weights of the examples.
        """
        return self._judge._compile_loss(y, y_pred, sample_weight)

    def of_outputs(self):
        """Returns the penalties in the loss that depend on more than weights.

        After `total`, in the same scope; `None` if there are none.
        """
        # Keras puts the regularizers of weights last.
        regularized = [
            v for v in self._model.trainable_variables if v.regularizer
        ]
        losses = self._model.losses
        added = losses[: len(losses) - len(regularized)]
        return self._share(added) if added else None

    @staticmethod
    def _share(losses):
        """Returns what Keras adds for them on one of several replicas."""
        replicas = tf.distribute.get_strategy().num_replicas_in_sync
        return sum(tf.reduce_sum(loss) for loss in losses) / replicas


def check_reductions(owner, losses):
    """Raises an error unless losses are means over the batch.

    Args:
        owner: Who needs it, a plural.
        losses: Losses of Keras, as `compile` takes them.
    """
    for loss in keras.tree.flatten(losses):
        reduction = getattr(loss, "reduction", "mean")
        if reduction not in ("mean", "sum_over_batch_size"):
            raise ValueError(
                f"{owner} need a loss that is the mean over the batch, with "
                'reduction="sum_over_batch_size". '
                f"Received: loss={loss.name!r} with reduction={reduction!r}"
            )
