"""Predictive quantities as tensors, made of an average over samples."""

from collections.abc import Callable
from collections.abc import Sequence
from typing import Any

from keras import ops

from keras_bdl.prediction.likelihood import Likelihood


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
    "predicted_classes": lambda average: ops.argmax(average["log_mean"], -1),
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
                f"Received: outputs={tuple(names)}"
            )
    return {name: known[name](average) for name in names}
