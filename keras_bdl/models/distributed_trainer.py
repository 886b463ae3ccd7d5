"""What a `keras.Model` needs on replicas of several sizes and machines."""

import functools

import keras

from keras_bdl.distribute.keras_fixes import build_with_a_local_batch
from keras_bdl.distribute.lost_worker import lost_worker_explained
from keras_bdl.models.build_metrics import build_metrics


class DistributedTrainer:
    """Builds a model with what lies here, and explains lost workers."""

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
        """Predicts."""
        with lost_worker_explained(self.distribute_strategy):
            return super().predict(*args, **kwargs)

    def _maybe_symbolic_build(self, iterator=None, data_batch=None):
        if iterator is None:
            super()._maybe_symbolic_build(iterator, data_batch)
        elif self._distribute_strategy is None:
            build_metrics(self, iterator._distributed_dataset)
        else:
            # Keras averages the first batch over the replicas, which fails
            # where their parts of it differ in size.
            build_with_a_local_batch(self, iterator)
