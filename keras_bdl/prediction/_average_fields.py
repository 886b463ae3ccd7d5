"""Fields that the averages of classifiers and of regressions share."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from keras import ops


def first_not_finite(values: Any) -> Any:
    """Returns for each example 0, or the number of a sample with a bad value.

    Samples count from 1.

    Args:
        values: Values with the samples on the first axis and the examples on
            the second.
    """
    finite = ops.isfinite(values)
    finite = ops.all(finite, axis=tuple(range(2, len(values.shape))))
    finite = ops.cast(finite, "int32")
    first = ops.cast(ops.argmin(finite, axis=0), "int32")
    return ops.where(ops.min(finite, axis=0) > 0, 0, first + 1)


def mask_of_samples(outputs: dict[str, Any]) -> dict[str, Any]:
    """Returns whether each entry counts in any sample, as `"mask"`.

    The result is empty without a mask.

    Args:
        outputs: Outputs with the samples on the first axis, and perhaps a
            `"mask"`.
    """
    if "mask" not in outputs:
        return {}
    return {"mask": ops.any(outputs["mask"], axis=0)}


def joined_batches(averages: Sequence[dict[str, Any]]) -> dict[str, np.ndarray]:
    """Returns the fields of all batches, with the examples of all batches.

    Args:
        averages: One average for each batch, in order, as NumPy arrays.
    """
    return {
        name: np.concatenate([average[name] for average in averages])
        for name in averages[0]
    }


def standard_error(average: dict[str, Any], count: int) -> np.ndarray:
    """Returns the Monte-Carlo standard error of the mean, NaN for one sample.

    Args:
        average: The average, as NumPy arrays.
        count: Number of samples in the average.
    """
    if count == 1:
        return np.full_like(average["variance"], np.nan)
    return np.sqrt(average["variance"] / (count - 1))


def standard_errors(
    averages: Sequence[dict[str, Any]], counts: Sequence[int]
) -> np.ndarray:
    """Returns the `standard_error` of the examples of all batches.

    Args:
        averages: One average for each batch, in order, as NumPy arrays.
        counts: Number of samples in each average.
    """
    return np.concatenate(
        [standard_error(*pair) for pair in zip(averages, counts, strict=True)]
    )


def samples_first(array: np.ndarray | None) -> np.ndarray | None:
    """Returns an array of an average with the samples on the first axis.

    Args:
        array: An array with the examples on the first axis, or `None`.
    """
    if array is None:
        return None
    return np.swapaxes(array, 0, 1)
