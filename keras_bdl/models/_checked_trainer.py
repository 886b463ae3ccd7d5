"""Trainers that check losses and metrics, and explain errors of workers."""

import functools
from collections.abc import Callable

import keras

from keras_bdl import _keras
from keras_bdl._data._dataset_size import check_mask
from keras_bdl._data._dataset_size import guard_loss
from keras_bdl.distribute._keras_fixes import build_with_a_local_batch
from keras_bdl.distribute._keras_fixes import in_several_workers
from keras_bdl.distribute._keras_fixes import mend_keras
from keras_bdl.distribute._workers import lost_worker_explained
from keras_bdl.likelihoods._loss_check import labels_are_open
from keras_bdl.models._build import build_metrics
from keras_bdl.models._metric_check import check_metrics


class DistributedTrainer:
    """Builds a model even if replicas get parts of different size.

    The class also explains errors of workers.
    """

    @functools.wraps(keras.Model.fit)
    def fit(self, *args, **kwargs):
        """Trains the model."""
        with lost_worker_explained(self.distribute_strategy):
            return super().fit(*args, **kwargs)

    @functools.wraps(keras.Model.evaluate)
    def evaluate(self, *args, **kwargs):
        """Evaluates the model."""
        with lost_worker_explained(self.distribute_strategy):
            return super().evaluate(*args, **kwargs)

    @functools.wraps(keras.Model.predict)
    def predict(self, *args, **kwargs):
        """Returns the predictions of the model."""
        with lost_worker_explained(self.distribute_strategy):
            return super().predict(*args, **kwargs)

    def make_train_function(self, force=False):
        """Makes the training step."""
        self._mend_keras()
        return super().make_train_function(force)

    def make_test_function(self, force=False):
        """Makes the step of an evaluation."""
        self._mend_keras()
        return super().make_test_function(force)

    def make_predict_function(self, force=False):
        """Makes the step of a prediction."""
        self._mend_keras()
        return super().make_predict_function(force)

    def _mend_keras(self):
        # Every training, evaluation and prediction makes its step first.
        if in_several_workers(self.distribute_strategy):
            mend_keras()

    def _maybe_symbolic_build(self, iterator=None, data_batch=None):
        alone = _keras.strategy_of_model(self) is None
        if alone and labels_are_open(self):
            # Layers need the number of labels before the loss shows it.
            if iterator is not None:
                data_batch = _keras.source_dataset(iterator).element_spec
            _keras.symbolic_build(self, data_batch)
        elif iterator is None:
            super()._maybe_symbolic_build(iterator, data_batch)
        elif alone:
            build_metrics(self, _keras.source_dataset(iterator))
        else:
            # Keras averages the first batch over the replicas, which fails
            # if their parts of the batch differ in size.
            build_with_a_local_batch(self, iterator)


class CheckedTrainer(DistributedTrainer):
    """Raises an error for losses and metrics that would give wrong numbers.

    A method that uses N needs a loss that is the mean negative log-likelihood.
    A model without such a method may have any loss of Keras.
    """

    _methods: Callable[[], list]

    def compute_loss(
        self, x=None, y=None, y_pred=None, sample_weight=None, training=True
    ):
        """Computes the loss, and checks it when training is traced.

        Args:
            x: The inputs.
            y: The targets.
            y_pred: The outputs.
            sample_weight: The weights of the examples.
            training: Whether this is the loss of training.
        """
        if training:  # Layers may have been added after `compile`.
            self.guard_likelihood()
            check_mask(self, self._methods(), y_pred)
        return super().compute_loss(
            x, y, y_pred, sample_weight, training=training
        )

    def compute_metrics(self, x, y, y_pred, sample_weight=None):
        """Updates the metrics, and checks them when they are built.

        Args:
            x: The inputs.
            y: The targets.
            y_pred: The outputs.
            sample_weight: The weights of the examples.
        """
        check_metrics(self, y, y_pred)
        return super().compute_metrics(x, y, y_pred, sample_weight)

    def guard_likelihood(self) -> None:
        """Checks the loss if a method uses the loss as a likelihood."""
        guard_loss(self, self._methods())
