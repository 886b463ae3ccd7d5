"""The loss that per-example gradients are taken of."""

import keras
import tensorflow as tf

from keras_bdl import _keras
from keras_bdl.likelihoods.loss_check import check_reductions
from keras_bdl.likelihoods.loss_check import one_value_each

_OWNER = "per-example gradients"


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
        check_reductions(_OWNER, self._judge.loss)

    def total(self, x, y, y_pred, sample_weight, training):
        """Returns the whole loss, as `compute_loss` of the model.

        Args:
            x: The inputs.
            y: The targets.
            y_pred: The outputs.
            sample_weight: The weights of the examples.
            training: Whether the outputs are those of training.
        """
        with one_value_each(_OWNER, _keras.compile_loss(self._judge)):
            loss = _keras.compute_loss(
                self._judge, x, y, y_pred, sample_weight, training=training
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
        with one_value_each(_OWNER, _keras.compile_loss(self._judge)) as loss:
            return loss(y, y_pred, sample_weight)

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
