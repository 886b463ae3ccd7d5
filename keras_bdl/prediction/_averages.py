"""Averages over posterior samples of the outputs for one batch."""

from collections.abc import Callable
from collections.abc import Sequence
from typing import Any

import numpy as np
from keras import ops

from keras_bdl._arguments import as_list
from keras_bdl._arguments import did_you_mean
from keras_bdl._backend import argmax
from keras_bdl.prediction._options import IDENTITY
from keras_bdl.prediction._options import PROBIT
from keras_bdl.prediction._outputs import DescribedOutput
from keras_bdl.prediction._outputs import Likelihood
from keras_bdl.prediction._outputs import OutputCheck
from keras_bdl.prediction._outputs import set_mask
from keras_bdl.prediction._predictions import ClassificationPrediction
from keras_bdl.prediction._predictions import RegressionPrediction


def average_of(likelihood: Likelihood) -> Any:
    """Returns the class that averages outputs with a given meaning."""
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
    """
    dtype = first["variance"].dtype
    a = ops.cast(first_count / (first_count + second_count), dtype)
    b = 1.0 - a

    def mean_of(name: Any) -> Any:
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
    "mask": ops.logical_or,
    "off": ops.maximum,
    "lowest_within": ops.minimum,
}


def with_all_samples(average: dict[str, Any], count: int) -> dict[str, Any]:
    """Returns the average with the output of every sample.

    Samples that do not change the output are computed once.
    """
    repeated = {
        name: ops.repeat(average[name], count, axis=1)
        for name in ("samples", "variances")
        if name in average and count > 1 and average[name].shape[1] == 1
    }
    return average | repeated


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

        The samples are on the first axis and the examples on the second. A
        linearised model has logits as `"output"`, and as `"raw"` what the model
        returns. A model that masks entries has a `"mask"`.
        """
        output = outputs["output"]
        raw = outputs.get("raw", output)
        logits = "raw" in outputs or likelihood.from_logits
        log_p = _log_probabilities(output, likelihood.task, logits)
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
        """Returns the average that a prediction was made of."""
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
        """Returns the prediction made of the averages of all batches."""
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


def _log_probabilities(output: Any, task: Any, from_logits: Any) -> Any:
    if task == "binary":
        return _log_bernoulli(output, from_logits)
    if from_logits:
        return ops.log_softmax(output, axis=-1)
    log_p = ops.log(output)
    # In half precision, rows sum to 1 only up to rounding.
    return log_p - ops.log(ops.sum(output, axis=-1, keepdims=True))


def _log_bernoulli(output: Any, from_logits: Any) -> Any:
    if output.shape[-1] == 1:
        output = ops.squeeze(output, axis=-1)
    if from_logits:
        no, yes = ops.log_sigmoid(-output), ops.log_sigmoid(output)
    else:
        output = ops.clip(output, 0.0, 1.0)
        no, yes = ops.log1p(-output), ops.log(output)
    return ops.stack([no, yes], axis=-1)


def _class_labels(y: Any, shape: Any) -> Any:
    """Returns labels without a last axis of length 1, as integers."""
    if y.ndim == len(shape) and y.shape[-1] == 1:
        y = y[..., 0]
    whole = np.issubdtype(y.dtype, np.floating) and np.all(y == np.rint(y))
    if whole and y.ndim == len(shape) - 1:
        y = y.astype("int32")
    return y


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

        The model may predict the `"variance"` of its noise beside the `"mean"`.
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
            "not_finite": first_not_finite(means),
            **mask_of_samples(outputs),
        }
        if keep_samples:
            average["samples"] = ops.swapaxes(means, 0, 1)
        if variances is not None:
            average["within"] = ops.mean(variances, axis=0)
            average["lowest_within"] = ops.min(variances, axis=0)
            average["not_finite"] = ops.maximum(
                average["not_finite"], first_not_finite(variances)
            )
            if keep_samples:
                average["variances"] = ops.swapaxes(variances, 0, 1)
        return average

    @staticmethod
    def of_prediction(prediction: RegressionPrediction) -> dict[str, Any]:
        """Returns the average that a prediction was made of."""
        average = {
            "anchor": prediction.mean,
            "offset": np.zeros_like(prediction.mean),
            "variance": prediction.variance_between,
            **({} if prediction.mask is None else {"mask": prediction.mask}),
        }
        if prediction.noise_is_known:
            average["within"] = prediction.variance_within
        return average

    @staticmethod
    def join(
        averages: Sequence[dict[str, Any]],
        counts: Sequence[int],
        y: np.ndarray | None = None,
        noise_stddev: Any = None,
    ) -> RegressionPrediction:
        """Returns the prediction made of the averages of all batches."""
        joined = joined_batches(averages)
        num_samples = max(counts)
        mean = joined["anchor"] + joined["offset"]
        within = joined.get("within")
        variances = samples_first(joined.get("variances"))
        if noise_stddev is not None:
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
            samples=samples_first(joined.get("samples")),
            sample_variances=variances,
            standard_error=standard_errors(averages, counts),
            mask=joined.get("mask"),
        )


def _broadcast_noise(noise_stddev: Any, shape: Any) -> Any:
    noise = np.asarray(noise_stddev, "float32")
    try:
        return np.broadcast_to(noise, shape)
    except ValueError:
        raise ValueError(
            "`noise_stddev` must be a number or an array that broadcasts to "
            f"the predicted mean, of shape {shape}. "
            f"Received: noise_stddev of shape {noise.shape}"
        ) from None


def first_not_finite(values: Any) -> Any:
    """Returns for each example 0, or the number of a sample with a bad value.

    Samples count from 1.
    """
    finite = ops.isfinite(values)
    finite = ops.all(finite, axis=tuple(range(2, len(values.shape))))
    finite = ops.cast(finite, "int32")
    first = ops.cast(ops.argmin(finite, axis=0), "int32")
    return ops.where(ops.min(finite, axis=0) > 0, 0, first + 1)


def mask_of_samples(outputs: dict[str, Any]) -> dict[str, Any]:
    """Returns whether each entry counts in any sample, as `"mask"`.

    The result is empty without a mask.
    """
    if "mask" not in outputs:
        return {}
    return {"mask": ops.any(outputs["mask"], axis=0)}


def joined_batches(averages: Sequence[dict[str, Any]]) -> dict[str, np.ndarray]:
    """Returns the fields of all batches, with the examples of all batches."""
    return {
        name: np.concatenate([average[name] for average in averages])
        for name in averages[0]
    }


def standard_error(average: dict[str, Any], count: int) -> np.ndarray:
    """Returns the Monte-Carlo standard error of the mean, NaN for one."""
    if count == 1:
        return np.full_like(average["variance"], np.nan)
    return np.sqrt(average["variance"] / (count - 1))


def standard_errors(
    averages: Sequence[dict[str, Any]], counts: Sequence[int]
) -> np.ndarray:
    """Returns the `standard_error` of the examples of all batches."""
    return np.concatenate(
        [standard_error(*pair) for pair in zip(averages, counts, strict=True)]
    )


def samples_first(array: np.ndarray | None) -> np.ndarray | None:
    """Returns an array of an average with the samples on the first axis."""
    if array is None:
        return None
    return np.swapaxes(array, 0, 1)


def _entropy(average: Any) -> Any:
    # A class of probability 0 adds 0 and not 0 * log 0.
    log_p = ops.maximum(average["log_mean"], -1e38)
    return -ops.sum(ops.exp(log_p) * log_p, axis=-1)


def _information(average: Any) -> Any:
    return ops.maximum(_entropy(average) - average["entropy"], 0.0)


def _within(average: Any) -> Any:
    within = average.get("within")
    return ops.zeros_like(average["offset"]) if within is None else within


def _variance(average: Any) -> Any:
    return average["variance"] + _within(average)


# The names are those of `ClassificationPrediction`.
_CLASSIFICATION: dict[str, Callable] = {
    "mean": lambda average: ops.exp(average["log_mean"]),
    "log_mean": lambda average: average["log_mean"],
    "entropy": _entropy,
    "expected_entropy": lambda average: average["entropy"],
    "mutual_information": _information,
    "confidence": lambda average: ops.exp(ops.max(average["log_mean"], -1)),
    "predicted_classes": lambda average: argmax(average["log_mean"]),
    "stddev": lambda average: ops.sqrt(average["variance"]),
    "samples": lambda average: average["samples"],
}
# The names are those of `RegressionPrediction`.
_REGRESSION: dict[str, Callable] = {
    "mean": lambda average: average["anchor"] + average["offset"],
    "variance": _variance,
    "stddev": lambda average: ops.sqrt(_variance(average)),
    "variance_between": lambda average: average["variance"],
    "variance_within": _within,
    "samples": lambda average: average["samples"],
}


# The quantities that a link without samples has.
IN_CLOSED_FORM = {
    PROBIT: ("mean", "log_mean", "entropy", "confidence", "predicted_classes"),
    IDENTITY: tuple(name for name in _REGRESSION if name != "samples"),
}


# With the classes on the last axis.
_OF_CLASSES = ("mean", "log_mean", "stddev", "samples")


def as_names(names: str | Sequence[str]) -> Sequence[str]:
    """Returns one name or several as a list or tuple."""
    return (names,) if isinstance(names, str) else names


def checked_names(outputs: Any) -> Any:
    """Returns one name or a list of names, or raises an error."""
    if isinstance(outputs, str):
        return outputs
    outputs = as_list("outputs", outputs, "names")
    if not outputs or not all(isinstance(name, str) for name in outputs):
        raise ValueError(
            "`outputs` must be one name, or at least one name in a list. "
            f"Received: outputs={outputs!r}"
        )
    return outputs


def named_quantities(
    names: str | Sequence[str],
    averages: Sequence[dict[str, Any]],
    outputs: Sequence[DescribedOutput],
    prefixes: Sequence[str],
) -> Any:
    """Returns the quantities of all outputs of a network.

    One name for one output gives a tensor, in the shape of the network's
    output. All other cases give a dictionary of tensors, whose names start with
    the prefix of the output if there are several outputs.
    """
    single = isinstance(names, str)
    found = [
        quantities(as_names(names), average, output.likelihood)
        for average, output in zip(averages, outputs, strict=True)
    ]
    if isinstance(names, str) and names in _OF_CLASSES:
        found = [
            {names: _as_output(values[names], names, output)}
            for values, output in zip(found, outputs, strict=True)
        ]
    if len(found) == 1:
        return found[0][names] if isinstance(names, str) else found[0]
    return {
        prefix if single else f"{prefix}_{name}": value
        for prefix, values in zip(prefixes, found, strict=True)
        for name, value in values.items()
    }


def _as_output(value: Any, name: Any, output: Any) -> Any:
    """Returns a quantity of class 1 in the shape of a binary output."""
    if output.likelihood.task != "binary":
        return value
    before = 2 if name == "samples" else 1  # axes of examples and samples
    value = value[..., 1]
    if len(value.shape) == before and not output.is_vector:
        return ops.expand_dims(value, axis=-1)
    return value


def quantities(
    names: Sequence[str], average: dict[str, Any], likelihood: Likelihood
) -> dict[str, Any]:
    """Returns the quantities by name, with the examples on the first axis."""
    regression = likelihood.task == "regression"
    known = _REGRESSION if regression else _CLASSIFICATION
    for name in names:
        if name not in known:
            task = "regression" if regression else "classification"
            raise ValueError(
                f"`outputs` of a {task} must be among {list(known)}. "
                f"{did_you_mean(name, known)}Received: outputs={tuple(names)}"
            )
    found = {name: known[name](average) for name in names}
    if "mask" in average:
        for name, tensor in found.items():
            if name != "samples":  # has the samples on its second axis
                set_mask(tensor, average["mask"])
    return found
