"""Means of resampled examples."""

import numpy as np

# More examples are joined into this many random groups, which are resampled.
MOST_UNITS = 2**14


def bootstrap_means(
    columns: np.ndarray, *, repeats: int, seed: int
) -> np.ndarray:
    """Returns the means of the columns over resampled rows.

    Each repeat draws as many rows as there are, with replacement, and uses
    them for all columns. The difference of two columns of the result is a
    paired bootstrap. More than 16,384 rows are joined into as many groups of
    random rows: the mean of a resample has the same variance.

    Args:
        columns: Finite numbers, one row for each example.
        repeats: Number of resamples.
        seed: Seed of the resamples.

    Returns:
        An array with one row for each repeat.
    """
    rng = np.random.default_rng(seed)
    size = np.ones(len(columns))
    if len(columns) > MOST_UNITS:
        group = rng.permutation(len(columns)) % MOST_UNITS
        size = np.bincount(group).astype("float64")
        columns = np.stack(
            [np.bincount(group, column) for column in columns.T], axis=1
        )
    units = len(size)
    means = np.empty((repeats, columns.shape[1]))
    for repeat in range(repeats):
        drawn = rng.integers(units, size=units)
        weight = np.bincount(drawn, minlength=units).astype("float64")
        means[repeat] = weight @ columns / (weight @ size)
    return means
