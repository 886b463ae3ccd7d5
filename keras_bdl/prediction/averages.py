"""Averages of the outputs of one batch over posterior samples."""

from typing import Any

import numpy as np
from keras import ops

from keras_bdl.prediction.classification_prediction import (
    ClassificationPrediction,
)
from keras_bdl.prediction.likelihood import Likelihood
from keras_bdl.prediction.regression_prediction import RegressionPrediction


class RunningMoments:
    """Running mean and variance of a sequence of arrays.

    Welford's recursion avoids cancellation and keeps no old array:

        mean_s = mean_(s-1) + (x_s - mean_(s-1)) / s                      (1)
        m2_s = m2_(s-1) + (x_s - mean_(s-1)) (x_s - mean_s)               (2)
        variance = m2 / s                                                 (3)
    """

    def __init__(self):
        self.count = 0
        self.mean: Any = None
        self._m2: Any = None

    def update(self, x: np.ndarray) -> None:
        """Adds the next array."""
        self.count += 1
        if self.count == 1:
            self.mean = np.array(x)
            self._m2 = np.zeros_like(self.mean)
            return
        delta = x - self.mean
        self.mean += delta / self.count  # (1)
        delta *= x - self.mean
        self._m2 += delta  # (2)

    @property
    def variance(self) -> np.ndarray:
        """The variance (3)."""
        return self._m2 / self.count


# Replaces log 0 in sums and differences, where infinity would give NaN.
_LOG_ZERO = -1e38


class ClassificationAverage:
    """Averages the probabilities of one batch over posterior samples.

    Probabilities are averaged as logarithms, so that a class of probability
    e^-800 keeps its rank and a finite negative log-likelihood.

    Args:
        keep_samples: Whether to keep the probabilities of every sample.
            Defaults to `False`.
    """

    def __init__(self, keep_samples: bool = False):
        self._moments = RunningMoments()
        self._samples: list | None = [] if keep_samples else None
        self._log_sum: Any = None
        self._entropy: Any = 0.0
        self._votes: Any = None

    @staticmethod
    def statistics(output: Any, likelihood: Likelihood) -> dict[str, Any]:
        """Returns the quantities to average, as tensors in the graph.

        Args:
            output: An output of the model, `float32` or `float64`.
            likelihood: The `Likelihood` of the output.
        """
        log_p = _log_probabilities(output, likelihood)
        # A class of probability 0 adds 0 to the entropy, not 0 * log 0.
        log_p = ops.maximum(log_p, _LOG_ZERO)
        return {
            "log_probabilities": log_p,
            "entropy": -ops.sum(ops.exp(log_p) * log_p, axis=-1),
        }

    def update(self, statistics: dict[str, np.ndarray]) -> None:
        """Adds one posterior sample.

        Args:
            statistics: The result of `statistics`, as NumPy arrays.
        """
        log_p = statistics["log_probabilities"]
        probabilities = np.exp(log_p)
        if self._log_sum is None:
            self._log_sum = np.array(log_p)
            self._votes = np.zeros(log_p.shape, "int32")
        else:
            _add_exp(self._log_sum, log_p)
        self._moments.update(probabilities)
        self._entropy = self._entropy + statistics["entropy"]
        # Each row votes once, so no index occurs twice. `argmax` in the
        # graph would take forty times as long.
        classes = log_p.argmax(-1).reshape(-1)
        first = np.arange(classes.size) * log_p.shape[-1]
        self._votes.reshape(-1)[first + classes] += 1
        if self._samples is not None:
            self._samples.append(probabilities)

    @classmethod
    def join(
        cls,
        averages: "list[ClassificationAverage]",
        y: np.ndarray | None = None,
    ) -> ClassificationPrediction:
        """Returns the prediction made of the averages of all batches.

        Args:
            averages: One average for each batch, in order.
            y: The labels of all batches. Defaults to `None`.
        """
        num_samples = averages[0]._moments.count
        log_sum = np.concatenate([a._log_sum for a in averages])
        # Rounding could lift a probability above 1.
        log_mean = np.minimum(log_sum - np.log(num_samples), 0.0)
        log_mean = log_mean.astype("float32")
        log_mean[log_sum <= _LOG_ZERO] = -np.inf
        samples = None
        if averages[0]._samples is not None:
            samples = np.concatenate(
                [np.stack(a._samples or []) for a in averages], axis=1
            )
        return ClassificationPrediction(
            log_mean,
            expected_entropy=np.concatenate([a._entropy for a in averages])
            / num_samples,
            stddev=np.sqrt(
                np.concatenate([a._moments.variance for a in averages])
            ),
            votes=np.concatenate([a._votes for a in averages]),
            num_samples=num_samples,
            y=None if y is None else _class_labels(y, log_mean.shape),
            samples=samples,
        )


def _add_exp(log_sum, log_p):
    """Sets `log_sum = log(exp(log_sum) + exp(log_p))` in place.

    The function is seven times as fast as `np.logaddexp`.
    """
    small = log_p - log_sum
    np.maximum(log_sum, log_p, out=log_sum)
    np.exp(-np.abs(small, out=small), out=small)
    log_sum += np.log1p(small, out=small)


def _log_probabilities(output, likelihood):
    if likelihood.task == "binary":
        return _log_bernoulli(output, likelihood.from_logits)
    if likelihood.from_logits:
        return ops.log_softmax(output, axis=-1)
    log_p = ops.log(output)
    # In half precision, rows sum to 1 only up to rounding.
    return log_p - ops.log(ops.sum(output, axis=-1, keepdims=True))


def _log_bernoulli(output, from_logits):
    if output.shape[-1] == 1:
        output = ops.squeeze(output, axis=-1)
    if from_logits:
        no, yes = ops.log_sigmoid(-output), ops.log_sigmoid(output)
    else:
        output = ops.clip(output, 0.0, 1.0)
        no, yes = ops.log1p(-output), ops.log(output)
    return ops.stack([no, yes], axis=-1)


def _class_labels(y, shape):
    """Returns labels without a last axis of length 1, as integers."""
    if y.ndim == len(shape) and y.shape[-1] == 1:
        y = y[..., 0]
    whole = np.issubdtype(y.dtype, np.floating) and np.all(y == np.rint(y))
    if whole and y.ndim == len(shape) - 1:
        y = y.astype("int32")
    return y


class RegressionAverage:
    """Averages the means and variances of one batch over posterior samples.

    Args:
        keep_samples: Whether to keep the mean and the variance of every
            sample. Defaults to `False`.
    """

    def __init__(self, keep_samples: bool = False):
        self._moments = RunningMoments()
        self._within: Any = 0.0
        self._samples: list | None = [] if keep_samples else None
        self._variances: list = []

    def update(self, statistics: dict[str, np.ndarray]) -> None:
        """Adds one posterior sample.

        Args:
            statistics: The `"mean"` of the sample, and the `"variance"` if
                the output has one.
        """
        mean, variance = statistics["mean"], statistics.get("variance")
        # float64, because targets far from 0 may have a small spread.
        self._moments.update(mean.astype("float64"))
        if variance is not None:
            self._within = self._within + variance
        if self._samples is not None:
            self._samples.append(mean)
            self._variances.append(variance)

    @classmethod
    def join(
        cls,
        averages: "list[RegressionAverage]",
        y: np.ndarray | None = None,
        noise_stddev: Any = None,
    ) -> RegressionPrediction:
        """Returns the prediction made of the averages of all batches.

        Args:
            averages: One average for each batch, in order.
            y: The targets of all batches. Defaults to `None`.
            noise_stddev: Standard deviation of the noise, if the outputs do
                not hold a variance. Defaults to `None`, unknown.
        """
        num_samples = averages[0]._moments.count
        mean = np.concatenate([a._moments.mean for a in averages])
        between = np.concatenate([a._moments.variance for a in averages])
        samples = variances = within = None
        has_variance = np.ndim(averages[0]._within) > 0
        if has_variance:
            within = np.concatenate([a._within for a in averages])
            within = (within / num_samples).astype("float32")
        elif noise_stddev is not None:
            within = variances = np.square(
                _broadcast_noise(noise_stddev, mean.shape)
            )
        if averages[0]._samples is not None:
            samples = _stacked([a._samples for a in averages])
            if has_variance:
                variances = _stacked([a._variances for a in averages])
        if y is not None and y.size == mean.size:
            y = y.reshape(mean.shape)
        return RegressionPrediction(
            mean.astype("float32"),
            variance_between=between.astype("float32"),
            variance_within=within,
            num_samples=num_samples,
            y=y,
            samples=samples,
            sample_variances=variances,
        )


def _stacked(batches):
    return np.concatenate([np.stack(samples) for samples in batches], axis=1)


def _broadcast_noise(noise_stddev, shape):
    noise = np.asarray(noise_stddev, "float32")
    try:
        return np.broadcast_to(noise, shape)
    except ValueError:
        raise ValueError(
            "`noise_stddev` must be a number or an array that broadcasts to "
            f"the predicted mean, of shape {shape}. "
            f"Received: noise_stddev of shape {noise.shape}"
        ) from None
