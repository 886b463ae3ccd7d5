"""Predictive quantities as tensors, made of an average over samples."""

from collections.abc import Callable
from collections.abc import Sequence
from typing import Any

import tensorflow as tf
from keras import ops

from keras_bdl._arguments import as_list
from keras_bdl._arguments import did_you_mean
from keras_bdl.prediction._average_options import IDENTITY
from keras_bdl.prediction._average_options import PROBIT
from keras_bdl.prediction._described_output import DescribedOutput
from keras_bdl.prediction._likelihood import Likelihood
from keras_bdl.prediction._output_mask import set_mask


def _entropy(average):
    # A class of probability 0 adds 0 and not 0 * log 0.
    log_p = ops.maximum(average["log_mean"], -1e38)
    return -ops.sum(ops.exp(log_p) * log_p, axis=-1)


def _information(average):
    return ops.maximum(_entropy(average) - average["entropy"], 0.0)


def _within(average):
    within = average.get("within")
    return ops.zeros_like(average["offset"]) if within is None else within


def _variance(average):
    return average["variance"] + _within(average)


# The names are those of `ClassificationPrediction`.
_CLASSIFICATION: dict[str, Callable] = {
    "mean": lambda average: ops.exp(average["log_mean"]),
    "log_mean": lambda average: average["log_mean"],
    "entropy": _entropy,
    "expected_entropy": lambda average: average["entropy"],
    "mutual_information": _information,
    "confidence": lambda average: ops.exp(ops.max(average["log_mean"], -1)),
    "predicted_classes": lambda average: tf.argmax(
        # The function of Keras uses operations that ONNX and LiteRT lack.
        average["log_mean"],
        -1,
        output_type=tf.int32,
    ),
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
    """Returns one name or several as a list or tuple.

    Args:
        names: One name, or several.
    """
    return (names,) if isinstance(names, str) else names


def checked_names(outputs: Any) -> Any:
    """Returns one name or a list of names, or raises an error.

    Args:
        outputs: Argument of `PosteriorPredictive`.
    """
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

    Args:
        names: One name, or several. One name for one output gives a tensor.
            All other cases give a dictionary of tensors. With one name, a
            binary output has its own shape: only the values of class 1.
        averages: For each output, an average of
            `keras_bdl.prediction.averages`.
        outputs: The meaning of each output.
        prefixes: For each of several outputs, what its names start with.
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


def _as_output(value, name, output):
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
    """Returns the quantities by name, with the examples on the first axis.

    Args:
        names: Names of attributes of `ClassificationPrediction` or
            `RegressionPrediction`.
        average: An average of `ClassificationAverage` or
            `RegressionAverage`.
        likelihood: The `Likelihood` of the output.
    """
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
