"""Means of resampled examples."""

from collections.abc import Callable

import numpy as np

# More examples are joined into this many random groups, which are resampled.
MOST_UNITS = 2**14


def bootstrap_means(
    sums: Callable[[np.ndarray, int], np.ndarray],
    count: int,
    *,
    repeats: int,
    seed: int,
) -> tuple[np.ndarray, np.ndarray]:
    """Returns the means of columns over all rows, and over resampled rows.

    Each repeat draws as many rows as there are, with replacement, and uses
    them for all columns. The difference of two columns of the result is a
    paired bootstrap. More than 16,384 rows are joined into as many groups of
    random rows: the mean of a resample has the same variance.

    Args:
        sums: Function from the group of each row, and the number of groups, to
            the sums of the columns over the rows of each group.
        count: Number of rows.
        repeats: Number of resamples.
        seed: Seed of the resamples.

    Returns:
        The means over all rows, and an array with one row for each repeat.
    """
    rng = np.random.default_rng(seed)
    group, units = np.arange(count), count
    if count > MOST_UNITS:
        group, units = rng.permutation(count) % MOST_UNITS, MOST_UNITS
    size = np.bincount(group, minlength=units).astype("float64")
    columns = sums(group, units)
    means = np.empty((repeats, columns.shape[1]))
    for repeat in range(repeats):
        drawn = rng.integers(units, size=units)
        weight = np.bincount(drawn, minlength=units).astype("float64")
        means[repeat] = weight @ columns / (weight @ size)
    return columns.sum(0) / count, means
