"""Averages of the outputs of one batch over posterior samples."""

from typing import Any

from keras import ops

from keras_bdl.prediction._classification_average import ClassificationAverage
from keras_bdl.prediction._likelihood import Likelihood
from keras_bdl.prediction._regression_average import RegressionAverage


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
    "mask": ops.logical_or,
    "off": ops.maximum,
    "lowest_within": ops.minimum,
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
