"""A trainer whose loss is the evidence bound of variational layers."""

from typing import Any

from keras_bdl._aliases import ArrayLike
from keras_bdl._data._dataset_size import dataset_sizes
from keras_bdl.layers._variational import variational_layers
from keras_bdl.models._build import build_optimizer
from keras_bdl.models._checked_trainer import CheckedTrainer
from keras_bdl.models._evidence_metrics import EvidenceBound
from keras_bdl.models._evidence_metrics import PriorVersions
from keras_bdl.models._evidence_metrics import divergences


class EvidenceTrainer(CheckedTrainer):
    """Adds the KL to the loss and tracks `nll` and `kl`.

    If a layer gets a prior of another kind, the model traces its steps again.
    """

    _evidence_bound: Any = None  # an `EvidenceBound` after `compile`
    _prior_versions: PriorVersions
    step_record: Any = None  # a `StepRecord` after `compile`

    def _track_evidence_bound(self):
        self._evidence_bound = EvidenceBound()
        self._prior_versions = PriorVersions()

    def make_train_function(self, force=False):
        """Makes a training step if none exists or the kind of a prior changed.

        Args:
            force: Whether to make a new step in any case. Defaults to `False`.
        """
        if self.built:
            build_optimizer(self)
        for size in dataset_sizes(self, self._methods()):
            size.settle()  # the first pass has shown the number of labels
        force |= self._prior_versions.differ(self, "train")
        return super().make_train_function(force)

    def make_test_function(self, force=False):
        """Makes a test step if none exists or the kind of a prior changed.

        Args:
            force: Whether to make a new step in any case. Defaults to `False`.
        """
        force |= self._prior_versions.differ(self, "test")
        return super().make_test_function(force)

    @property
    def metrics(self):
        """The metrics of Keras, and `nll` and `kl` if the model has a KL."""
        metrics = super().metrics
        if self._evidence_bound is not None and divergences(self):
            metrics = [*metrics, *self._evidence_bound.metrics]
        return metrics

    @property
    def losses(self):
        """The losses that layers have added, such as the KL."""
        if self.step_record is not None:
            self.step_record.losses += 1
        return super().losses

    def compute_loss(
        self, x=None, y=None, y_pred=None, sample_weight=None, training=True
    ):
        """Computes the loss: the evidence bound with variational layers.

        Args:
            x: The inputs.
            y: The targets.
            y_pred: The outputs.
            sample_weight: The weights of the examples.
            training: Whether this is the loss of training.
        """
        loss = super().compute_loss(
            x, y, y_pred, sample_weight, training=training
        )
        # In training, an objective adds its own KL.
        if variational_layers(self) or (not training and divergences(self)):
            # An own `train_step` may leave out the inputs.
            batch = y_pred if x is None else x
            loss = self._evidence_bound.complete(self, loss, batch, training)
        return loss

    def update_evidence_bound(
        self, x: ArrayLike, *, nll: ArrayLike, kl: ArrayLike | None
    ) -> None:
        """Updates the metrics `nll` and `kl` after a batch.

        Args:
            x: The inputs.
            nll: Mean negative log-likelihood of the batch.
            kl: KL divided by N, or `None` if N is unknown.
        """
        self._evidence_bound.update(x, nll, kl)
