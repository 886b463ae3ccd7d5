"""Base of the callbacks: pickling, and the comparison of N."""

import keras

from keras_bdl.callbacks.skipped_steps import SkippedSteps
from keras_bdl.data.tell_dataset_size import compare_with_epoch
from keras_bdl.models.bayesian_trainer import BayesianTrainer


class FitCallback(keras.callbacks.Callback):
    """Base of callbacks that can be pickled, and compare N with the data.

    A pickled callback has what it collected, its settings, and no model: what
    belongs to a running `fit` is left behind.
    """

    # Attributes that belong to a running `fit`; those of subclasses as well.
    _of_fit = ("_model", "params")

    def __getstate__(self):
        names = {
            n for c in type(self).__mro__ for n in vars(c).get("_of_fit", ())
        }
        return {**vars(self), **dict.fromkeys(names & vars(self).keys())}

    def on_train_batch_end(self, batch, logs=None):
        """Compares N with the data."""
        self.compare_dataset_size(batch)

    def compare_dataset_size(self, batch):
        """Warns once a `fit` where N is not what the first epoch has shown.

        Call it in an `on_train_batch_end` that replaces that of this class. A
        `keras_bdl.Model` has compared N before.

        Args:
            batch: The batch that has ended.
        """
        steps = self.params["steps"]
        if (
            "dataset_size_compared" in self.params
            or steps is None
            or batch + 1 < steps
            or isinstance(self.model.train_function, SkippedSteps)
        ):
            return
        # Keras hands one dictionary to all callbacks of a `fit`.
        self.params["dataset_size_compared"] = True
        if not isinstance(self.model, BayesianTrainer):
            compare_with_epoch(self.model, steps)
