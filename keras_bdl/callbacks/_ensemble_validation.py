"""`EnsembleValidation`: scores of all samples so far, after each epoch."""

from typing import Any

import keras
import numpy as np

from keras_bdl._aliases import Data
from keras_bdl.callbacks._sample_collector import SampleCollector
from keras_bdl.callbacks._stateful_callback import FitCallback
from keras_bdl.evaluation._evaluate import evaluate
from keras_bdl.prediction import ClassificationPrediction
from keras_bdl.prediction._averages import ClassificationAverage
from keras_bdl.prediction._averages import RegressionAverage
from keras_bdl.prediction._averages import merged
from keras_bdl.prediction._predict import predict
from keras_bdl.prediction._predictions import Prediction


class EnsembleValidation(FitCallback):
    """Evaluates the ensemble of all samples so far, at the end of each epoch.

    Use it to see how many samples a posterior needs. Every epoch logs
    `posterior_samples`, `posterior_accuracy` and `posterior_nll`. A regression
    logs `posterior_rmse`, and `posterior_nll` if the loss defines the noise.
    The values are NaN before the first sample. Each sample predicts once. Put
    the callback after its collector and before callbacks that write logs.

    Args:
        collector: The `SampleCollector` of the same `fit`.
        data: `(x, y)`, or a dataset of such batches in a fixed order.
        batch_size: Batch size for arrays. Defaults to `None`, 32.

    Example:

    ```python
    samples = keras_bdl.callbacks.SampleCollector(every=1)
    validation = keras_bdl.callbacks.EnsembleValidation(samples, (x, y))
    model.fit(x, y, epochs=2, callbacks=[samples, validation])
    ```
    """

    def __init__(
        self,
        collector: SampleCollector,
        data: Data,
        *,
        batch_size: int | None = None,
    ) -> None:
        super().__init__()
        if isinstance(data, (tuple, list)):
            if len(data) != 2:
                raise ValueError(
                    "`data` must be `(x, y)` or a dataset of batches. "
                    f"Received: a {type(data).__name__} of {len(data)} elements"
                )
            self._x, self._y = data
        else:
            self._x, self._y = data, None
        self._collector = collector
        self._seen: Any = None
        self._batch_size = batch_size
        self._numbers: dict[str, float] = {}
        self._average: Any = None
        self._num_samples: int = 0  # those in the average
        self._num_dropped: int = 0  # those that are no longer in it

    def set_params(self, params: dict[str, Any]) -> None:
        """Checks that the collector comes before this callback."""
        super().set_params(params)
        # Keras passes the same dictionary to one callback after the other.
        if self._collector.params is not params:
            raise ValueError(
                "`EnsembleValidation` must come after its collector in the "
                "list of `fit`. Received: a collector that is missing or after "
                "it"
            )

    def on_train_begin(self, logs: dict | None = None) -> None:
        """Checks the data with the current weights."""
        self._take(self._predict(posterior=None))
        self._forget()

    def on_epoch_end(self, epoch: int, logs: dict | None = None) -> None:
        """Adds new samples to the mean prediction, and logs its scores."""
        if logs is None:
            return
        samples = self._collector._samples
        if samples.num_dropped != self._num_dropped:
            self._forget()
            self._num_dropped = samples.num_dropped
        for place in range(self._num_samples, len(samples)):
            one = self._collector._ensemble([samples[place]])
            self._take(self._predict(one))
        numbers = self._numbers
        if not self._num_samples:
            numbers = dict.fromkeys(numbers, float("nan"))
        logs.update({"posterior_samples": self._num_samples, **numbers})

    def _forget(self) -> None:
        """Removes all samples from the mean prediction."""
        self._num_samples = self._num_dropped = 0
        self._average = None

    def _predict(self, posterior: Any) -> Any:
        prediction = predict(
            self.model,
            self._x,
            posterior,
            batch_size=self._batch_size,
            verbose=0,
        )
        if not isinstance(prediction, Prediction):
            raise ValueError(
                "`EnsembleValidation` needs a model with one output. "
                " Use `keras_bdl.predict` after training instead. "
                f"Received: outputs {list(self.model.output_names)}"
            )
        return prediction

    def _labels(self, prediction: Any) -> Any:
        if self._y is not None:
            return self._y
        if self._seen is None:
            self._seen = prediction.y
        if not np.array_equal(self._seen, prediction.y):
            raise ValueError(
                "`data` must give the same examples in the same "
                "order each time, so that predictions can be averaged. Remove "
                "`shuffle` from the dataset. Received: labels that differ from "
                "the first pass over the data"
            )
        return prediction.y

    def _added(self, kind: Any, prediction: Any) -> Any:
        """Returns the average over all samples, with those of `prediction`."""
        done = self._num_samples - 1
        average = kind.of_prediction(prediction)
        if done:
            average = merged(self._average, average, done, 1)
        self._average = keras.tree.map_structure(np.asarray, average)
        return kind.join([self._average], [self._num_samples])

    def _take(self, prediction: Any) -> None:
        self._num_samples += 1
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
