"""Checks the loss and the metrics that a model is compiled with."""

from keras_bdl.data.check_loss import check_loss
from keras_bdl.models.distributed_trainer import DistributedTrainer
from keras_bdl.models.metric_check import check_metrics


class CheckedTrainer(DistributedTrainer):
    """Refuses losses and metrics that would give wrong numbers in silence.

    Whatever asks for N takes the loss for the mean negative log-likelihood of
    an example. A model without it may have any loss that Keras takes.
    """

    def compute_loss(
        self, x=None, y=None, y_pred=None, sample_weight=None, training=True
    ):
        """Computes the loss, which is checked where training is traced.

        Args:
            x: The inputs.
            y: The targets.
            y_pred: The outputs.
            sample_weight: The weights of the examples.
            training: Whether the outputs are those of training.
        """
        if training:  # Layers may have been made since `compile`.
            self.check_likelihood()
        return super().compute_loss(
            x, y, y_pred, sample_weight, training=training
        )

    def compute_metrics(self, x, y, y_pred, sample_weight=None):
        """Updates the metrics, which are checked when they are built.

        Args:
            x: The inputs.
            y: The targets.
            y_pred: The outputs.
            sample_weight: The weights of the examples.
        """
        check_metrics(self, y, y_pred)
        return super().compute_metrics(x, y, y_pred, sample_weight)

    def check_likelihood(self):
        """Checks the loss where a method takes it for a likelihood."""
        check_loss(self, self._methods())
