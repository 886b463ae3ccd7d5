"""Averages of the outputs of one batch over posterior samples."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from keras import ops

from keras_bdl.prediction.classification_prediction import (
    ClassificationPrediction,
)
from keras_bdl.prediction.likelihood import Likelihood
from keras_bdl.prediction.outputs import OutputCheck
from keras_bdl.prediction.regression_prediction import RegressionPrediction

# Replaces log 0 in sums and differences, where infinity would give NaN.
_LOG_ZERO = -1e38


class ClassificationAverage:
    """Averages the probabilities of one batch over posterior samples.

    An average is a dictionary of arrays with the examples on the first axis.
    Probabilities are averaged as logarithms, so that a class of probability
    e^-800 keeps its rank and a finite negative log-likelihood.
    """

    @staticmethod
    def of_samples(
        outputs: dict[str, Any], likelihood: Likelihood, keep_samples: bool
    ) -> dict[str, Any]:
        """Returns the average over samples, as tensors in the graph.

        Args:
            outputs: The `"output"` of the model, `float32` or `float64`, with
                the samples on the first axis and the examples on the second.
                A linearised model has logits as `"output"`, and as `"raw"`
                what the model returns.
            likelihood: The `Likelihood` of the output.
            keep_samples: Whether to keep the probabilities of every sample.
        """
        output = outputs["output"]
        raw = outputs.get("raw", output)
        if "raw" in outputs:
            log_p = _log_probabilities(output, likelihood.task, True)
        else:
            log_p = _log_probabilities(
                output, likelihood.task, likelihood.from_logits
            )
        # A class of probability 0 adds 0 to the entropy, not 0 * log 0.
        log_p = ops.maximum(log_p, _LOG_ZERO)
        p = ops.exp(log_p)
        entropy = -ops.sum(p * log_p, axis=-1)
        highest = ops.max(log_p, axis=0)
        # The largest term is 1, and no term is infinite.
        mean = ops.mean(ops.exp(log_p - highest), axis=0)
        log_mean = highest + ops.log(mean)
        votes = ops.one_hot(
            ops.argmax(log_p, axis=-1), log_p.shape[-1], dtype=log_p.dtype
        )
        rows = OutputCheck.measure(raw, likelihood)
        average = {
            "log_mean": log_mean,
            "variance": ops.mean(ops.square(p - ops.exp(log_mean)), axis=0),
            "entropy": ops.mean(entropy, axis=0),
            "votes": ops.mean(votes, axis=0),
            "not_finite": _first_not_finite(entropy),
            "inside": ops.min(rows["inside"], axis=0),
            "off": ops.max(rows["off"], axis=0),
        }
        if keep_samples:
            average["samples"] = ops.swapaxes(p, 0, 1)
        return average

    @staticmethod
    def of_prediction(prediction: ClassificationPrediction) -> dict[str, Any]:
        """Returns the average that a prediction was made of.

        Args:
            prediction: The prediction for one batch.
        """
        return {
            "log_mean": np.maximum(prediction.log_mean, _LOG_ZERO),
            "variance": np.square(prediction.stddev),
            "entropy": prediction.expected_entropy,
            "votes": prediction.votes / prediction.num_samples,
        }

    @staticmethod
    def join(
        averages: Sequence[dict[str, Any]],
        counts: Sequence[int],
        y: np.ndarray | None = None,
    ) -> ClassificationPrediction:
        """Returns the prediction made of the averages of all batches.

        Args:
            averages: One average for each batch, in order, as NumPy arrays.
            counts: Number of samples in each average.
            y: The labels of all batches. Defaults to `None`.
        """
        joined = _joined(averages)
        num_samples = max(counts)
        # Rounding could lift a probability above 1.
        log_mean = np.minimum(joined["log_mean"], 0.0).astype("float32")
        log_mean[joined["log_mean"] <= _LOG_ZERO] = -np.inf
        return ClassificationPrediction(
            log_mean,
            expected_entropy=joined["entropy"],
            stddev=np.sqrt(joined["variance"]),
            votes=np.rint(num_samples * joined["votes"]).astype("int32"),
            num_samples=num_samples,
            y=None if y is None else _class_labels(y, log_mean.shape),
            standard_error=_standard_errors(averages, counts),
            samples=_samples_first(joined.get("samples")),
        )


class RegressionAverage:
    """Averages the means and variances of one batch over posterior samples.

    An average is a dictionary of arrays with the examples on the first axis.
    The mean is stored as a sum of the `"anchor"`, the mean of the first
    sample, and the `"offset"`: targets far from 0 may have a small spread.
    """

    @staticmethod
    def of_samples(
        outputs: dict[str, Any], likelihood: Likelihood, keep_samples: bool
    ) -> dict[str, Any]:
        """Returns the average over samples, as tensors in the graph.

        Args:
            outputs: The `"mean"` of each sample, and the `"variance"` if the
                model predicts its noise. The samples are on the first axis
                and the examples on the second.
            likelihood: The `Likelihood` of the output.
            keep_samples: Whether to keep the mean and the variance of every
                sample.
        """
        del likelihood
        means, variances = outputs["mean"], outputs.get("variance")
        anchor = means[0]
        offsets = means - anchor
        offset = ops.mean(offsets, axis=0)
        average = {
            "anchor": anchor,
            "offset": offset,
            "variance": ops.mean(ops.square(offsets - offset), axis=0),
            "not_finite": _first_not_finite(means),
        }
        if keep_samples:
            average["samples"] = ops.swapaxes(means, 0, 1)
        if variances is not None:
            average["within"] = ops.mean(variances, axis=0)
            average["lowest_within"] = ops.min(variances, axis=0)
            average["not_finite"] = ops.maximum(
                average["not_finite"], _first_not_finite(variances)
            )
            if keep_samples:
                average["variances"] = ops.swapaxes(variances, 0, 1)
        return average

    @staticmethod
    def of_prediction(prediction: RegressionPrediction) -> dict[str, Any]:
        """Returns the average that a prediction was made of.

        Args:
            prediction: The prediction for one batch.
        """
        return {
            "anchor": prediction.mean,
            "offset": np.zeros_like(prediction.mean),
            "variance": prediction.variance_between,
            "within": prediction.variance_within,
        }

    @staticmethod
    def join(
        averages: Sequence[dict[str, Any]],
        counts: Sequence[int],
        y: np.ndarray | None = None,
        noise_stddev: Any = None,
    ) -> RegressionPrediction:
        """Returns the prediction made of the averages of all batches.

        Args:
            averages: One average for each batch, in order, as NumPy arrays.
            counts: Number of samples in each average.
            y: The targets of all batches. Defaults to `None`.
            noise_stddev: Standard deviation of the noise, if the outputs do
                not hold a variance. Defaults to `None`, unknown.
        """
        joined = _joined(averages)
        num_samples = max(counts)
        mean = joined["anchor"] + joined["offset"]
        within = joined.get("within")
        variances = _samples_first(joined.get("variances"))
        if within is None and noise_stddev is not None:
            within = np.square(_broadcast_noise(noise_stddev, mean.shape))
            variances = within
        if y is not None and y.size == mean.size:
            y = y.reshape(mean.shape)
        return RegressionPrediction(
            mean.astype("float32"),
            variance_between=joined["variance"].astype("float32"),
            variance_within=within,
            num_samples=num_samples,
            y=y,
            samples=_samples_first(joined.get("samples")),
            sample_variances=variances,
            standard_error=_standard_errors(averages, counts),
        )


def average_of(likelihood: Likelihood) -> Any:
    """Returns the class that averages outputs with a given meaning.

    Args:
        likelihood: The `Likelihood` of the output.
    """
    if likelihood.task == "regression":
        return RegressionAverage
    return ClassificationAverage


def merged(
    first: dict[str, Any],
    second: dict[str, Any],
    first_count: Any,
    second_count: Any,
) -> dict[str, Any]:
    """Returns the average over the samples of two averages of one batch.

    With the shares a and b of the samples, a + b = 1, the variance around the
    common mean is

        a v_1 + b v_2 + a b (m_1 - m_2)^2                                 (1)

    Args:
        first: The average over some samples.
        second: The average over the samples that follow.
        first_count: Number of samples in `first`.
        second_count: Number of samples in `second`.
    """
    dtype = first["variance"].dtype
    a = ops.cast(first_count / (first_count + second_count), dtype)
    b = 1.0 - a

    def mean_of(name):
        return a * first[name] + b * second[name]

    result: dict[str, Any] = {}
    if "log_mean" in first:
        result["log_mean"] = ops.logaddexp(
            first["log_mean"] + ops.log(a), second["log_mean"] + ops.log(b)
        )
        difference = ops.exp(first["log_mean"]) - ops.exp(second["log_mean"])
    else:
        # The anchors are close to each other, so this loses no digits.
        offset = second["offset"] + (second["anchor"] - first["anchor"])
        difference = first["offset"] - offset
        result["anchor"] = first["anchor"]
        result["offset"] = a * first["offset"] + b * offset
    result["variance"] = mean_of("variance") + a * b * ops.square(difference)
    for name in ("entropy", "votes", "within"):
        if name in first:
            result[name] = mean_of(name)
    for name, reduce in _EXTREMES.items():
        if name in first:
            result[name] = reduce(first[name], second[name])
    for name in ("samples", "variances"):
        if name in first:
            result[name] = ops.concatenate([first[name], second[name]], axis=1)
    if "not_finite" in first:
        later = second["not_finite"]
        later = ops.where(later > 0, later + ops.cast(first_count, "int32"), 0)
        result["not_finite"] = ops.where(
            first["not_finite"] > 0, first["not_finite"], later
        )
    return result


_EXTREMES = {
    "inside": ops.minimum,
    "off": ops.maximum,
    "lowest_within": ops.minimum,
}


def _first_not_finite(values):
    """Returns for each example 0, or the number of a sample with a bad value.

    Samples count from 1.
    """
    finite = ops.isfinite(values)
    finite = ops.all(finite, axis=tuple(range(2, len(values.shape))))
    finite = ops.cast(finite, "int32")
    first = ops.cast(ops.argmin(finite, axis=0), "int32")
    return ops.where(ops.min(finite, axis=0) > 0, 0, first + 1)


def _joined(averages):
    return {
        name: np.concatenate([average[name] for average in averages])
        for name in averages[0]
    }


def with_all_samples(average: dict[str, Any], count: int) -> dict[str, Any]:
    """Returns the average with the output of every sample.

    Samples that do not change the output are computed once.

    Args:
        average: The average.
        count: Number of samples.
    """
    repeated = {
        name: ops.repeat(average[name], count, axis=1)
        for name in ("samples", "variances")
        if name in average and count > 1 and average[name].shape[1] == 1
    }
    return average | repeated


def standard_error(average: dict[str, Any], count: int) -> np.ndarray:
    """Returns the Monte-Carlo standard error of the mean, NaN for one sample.

    Args:
        average: The average, as NumPy arrays.
        count: Number of samples in the average.
    """
    if count == 1:
        return np.full_like(average["variance"], np.nan)
    return np.sqrt(average["variance"] / (count - 1))


def _standard_errors(averages, counts):
    return np.concatenate(
        [standard_error(*pair) for pair in zip(averages, counts, strict=True)]
    )


def _samples_first(array):
    if array is None:
        return None
    return np.swapaxes(array, 0, 1)


def _log_probabilities(output, task, from_logits):
    if task == "binary":
        return _log_bernoulli(output, from_logits)
    if from_logits:
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
