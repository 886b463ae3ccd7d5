"""The evaluation of all samples so far, for `SampleCollector`."""

import keras
import numpy as np
import tensorflow as tf

from keras_bdl._aliases import Data
from keras_bdl.evaluation import evaluate
from keras_bdl.posteriors._ensemble import Ensemble
from keras_bdl.prediction import ClassificationPrediction
from keras_bdl.prediction import Prediction
from keras_bdl.prediction import predict
from keras_bdl.prediction._averages import ClassificationAverage
from keras_bdl.prediction._averages import RegressionAverage
from keras_bdl.prediction._averages import merged


class RunningEvaluation:
    """Scores the mean prediction of all samples, updated sample by sample.

    Each sample predicts once, when it is added.

    Args:
        data: Arrays `(x, y)`, or a dataset of batches `(x, y)` in a fixed
            order.
        batch_size: Batch size for arrays. `None` means 32.
    """

    def __init__(self, data: Data, batch_size: int | None):
        if isinstance(data, (tuple, list)):
            if len(data) != 2:
                raise ValueError(
                    "`validation_data` must be `(x, y)` or a dataset of "
                    f"batches. Received: a {type(data).__name__} of "
                    f"{len(data)} elements"
                )
            self._x, self._y = data
        else:
            self._x, self._y = data, None
        self._seen = None
        self._batch_size = batch_size
        self.forget()

    def __getstate__(self):
        if isinstance(self._x, tf.data.Dataset):
            raise TypeError(
                "`SampleCollector` can be pickled only with arrays as "
                "`validation_data`. Pickle its `posterior` instead, or call "
                "`posterior.save(path)`. "
                f"Received: validation_data={type(self._x).__name__}"
            )
        return vars(self)

    def begin(self, model: keras.Model) -> None:
        """Checks the data with the current weights, and removes all samples."""
        self._take(self._predict(model, posterior=None))
        self.forget()

    def forget(self) -> None:
        """Removes all samples from the mean prediction."""
        self.num_samples = 0
        self._average = None

    def add(
        self, model: keras.Model, weights: list, names: list[str] | None
    ) -> None:
        """Predicts with one sample, and adds the result to the mean."""
        everything = len(weights) == len(model.weights)
        sample = Ensemble([weights], names=names, covers_frozen=everything)
        self._take(self._predict(model, sample))

    def logs(self) -> dict[str, float]:
        """Returns the scores of all samples, or NaN before the first sample."""
        numbers = self._numbers
        if not self.num_samples:
            numbers = dict.fromkeys(numbers, float("nan"))
        return {"posterior_samples": self.num_samples, **numbers}

    def _predict(self, model, posterior):
        prediction = predict(
            model, self._x, posterior, batch_size=self._batch_size, verbose=0
        )
        if not isinstance(prediction, Prediction):
            raise ValueError(
                "`validation_data` of `SampleCollector` needs a model with one "
                "output. Use `keras_bdl.predict` after training instead. "
                f"Received: outputs {list(model.output_names)}"
            )
        return prediction

    def _labels(self, prediction):
        if self._y is not None:
            return self._y
        if self._seen is None:
            self._seen = prediction.y
        if not np.array_equal(self._seen, prediction.y):
            raise ValueError(
                "`validation_data` must give the same examples in the same "
                "order each time, so that predictions can be averaged. Remove "
                "`shuffle` from the dataset. Received: labels that differ from "
                "the first pass over the data"
            )
        return prediction.y

    def _added(self, kind, prediction):
        """Returns the average over all samples, with those of `prediction`."""
        done = self.num_samples - 1
        average = kind.of_prediction(prediction)
        if done:
            average = merged(self._average, average, done, 1)
        self._average = keras.tree.map_structure(np.asarray, average)
        return kind.join([self._average], [self.num_samples])

    def _take(self, prediction):
        self.num_samples += 1
        y = self._labels(prediction)
        if isinstance(prediction, ClassificationPrediction):
            joined = self._added(ClassificationAverage, prediction)
            joined.ignore_class = prediction.ignore_class
            report = evaluate(joined, y)
            self._numbers = {
                "posterior_accuracy": report.accuracy,
                "posterior_nll": report.nll,
            }
        else:
            joined = self._added(RegressionAverage, prediction)
            report = evaluate(joined, y)
            self._numbers = {"posterior_rmse": report.rmse}
            if np.any(prediction.variance_within > 0):  # the loss has noise
                self._numbers["posterior_nll"] = -report.log_likelihood
