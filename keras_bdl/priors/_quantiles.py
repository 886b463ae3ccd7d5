"""Random draws from a table of quantiles."""

import functools

import numpy as np
from keras import ops

LIMIT = 6.0  # two standard normal draws in 10^9 lie beyond this
SIZE = 4097


@functools.cache
def table_probabilities():
    """Returns the probabilities below and above each entry of a table.

    The entries are standard normal numbers at equal distances. This spacing
    puts many entries into both tails.
    """
    from scipy.special import ndtr

    scores = np.linspace(-LIMIT, LIMIT, SIZE)
    return ndtr(scores), ndtr(-scores)


def interpolate(quantiles, scores):
    """Maps standard normal numbers to draws of another distribution.

    Args:
        quantiles: Quantiles of the other distribution at `table_probabilities`.
        scores: The standard normal numbers.
    """
    table = ops.convert_to_tensor(quantiles, "float32")
    position = (ops.clip(scores, -LIMIT, LIMIT) + LIMIT) * (
        (SIZE - 1) / (2 * LIMIT)
    )
    left = ops.minimum(ops.floor(position), SIZE - 2)
    index = ops.cast(left, "int32")
    low = ops.take(table, index)
    return low + (position - left) * (ops.take(table, index + 1) - low)
