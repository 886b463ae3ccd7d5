"""Average of class probabilities of one batch over posterior samples."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from keras import ops

from keras_bdl.prediction._average_fields import first_not_finite
from keras_bdl.prediction._average_fields import joined_batches
from keras_bdl.prediction._average_fields import mask_of_samples
from keras_bdl.prediction._average_fields import samples_first
from keras_bdl.prediction._average_fields import standard_errors
from keras_bdl.prediction._classification_prediction import (
    ClassificationPrediction,
)
from keras_bdl.prediction._likelihood import Likelihood
from keras_bdl.prediction._outputs import OutputCheck

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
                what the model returns. A model that masks entries has a
                `"mask"`.
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
            "not_finite": first_not_finite(entropy),
            "inside": ops.min(rows["inside"], axis=0),
            "off": ops.max(rows["off"], axis=0),
            **mask_of_samples(outputs),
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
            **({} if prediction.mask is None else {"mask": prediction.mask}),
        }

    @staticmethod
    def join(
        averages: Sequence[dict[str, Any]],
        counts: Sequence[int],
        y: np.ndarray | None = None,
        *,
        ignore_class: int | None = None,
    ) -> ClassificationPrediction:
        """Returns the prediction made of the averages of all batches.

        Args:
            averages: One average for each batch, in order, as NumPy arrays.
            counts: Number of samples in each average.
            y: The labels of all batches. Defaults to `None`.
            ignore_class: Label of entries that do not count. Defaults to
                `None`.
        """
        joined = joined_batches(averages)
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
            standard_error=standard_errors(averages, counts),
            samples=samples_first(joined.get("samples")),
            mask=joined.get("mask"),
            ignore_class=ignore_class,
        )


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
