"""How good the ensemble of the samples so far is."""

from keras_bdl.evaluation import evaluate
from keras_bdl.posteriors.ensemble import Ensemble
from keras_bdl.prediction import ClassificationPrediction
from keras_bdl.prediction import Prediction
from keras_bdl.prediction import predict
from keras_bdl.prediction.classification_average import ClassificationAverage
from keras_bdl.prediction.regression_average import RegressionAverage


class RunningEvaluation:
    """Averages the predictions of samples, each of which is predicted once.

    Args:
        data: `(x, y)`, or a data set of batches of these in a fixed order.
        batch_size: For arrays, or `None`: 32.
    """

    def __init__(self, data, batch_size: int | None):
        is_pair = isinstance(data, (tuple, list)) and len(data) == 2
        self._x, self._y = data if is_pair else (data, None)
        self._batch_size = batch_size
        self.forget()

    def begin(self, model):
        """Checks the data, on the model as it is, and forgets all samples."""
        self._take(self._predict(model, posterior=None))
        self.forget()

    def forget(self):
        """Goes back to no sample."""
        self.num_samples = 0
        self._average = None

    def add(self, model, weights, names):
        """Takes in one sample."""
        self._take(self._predict(model, Ensemble([weights], names)))

    def logs(self):
        """Returns the numbers of all samples, NaN if there are none."""
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
                "`validation_data` of `SampleCollector` must be left out for a "
                "model with several outputs; use `keras_bdl.predict` after "
                f"training. Received: outputs {list(model.output_names)}"
            )
        return prediction

    def _take(self, prediction):
        self.num_samples += 1
        y = prediction.y if self._y is None else self._y
        if isinstance(prediction, ClassificationPrediction):
            self._average = self._average or ClassificationAverage()
            self._average.update(
                {
                    "log_probabilities": prediction.log_mean,
                    "entropy": prediction.expected_entropy,
                }
            )
            report = evaluate(ClassificationAverage.join([self._average]), y)
            self._numbers = {
                "posterior_accuracy": report.accuracy,
                "posterior_nll": report.nll,
            }
        else:
            self._average = self._average or RegressionAverage()
            self._average.update(
                {
                    "mean": prediction.mean,
                    "variance": prediction.variance_within,
                }
            )
            report = evaluate(RegressionAverage.join([self._average]), y)
            self._numbers = {
                "posterior_rmse": report.rmse,
                "posterior_nll": -report.log_likelihood,
            }
