"""Whether the samples of a chain still drift."""

import math
import warnings

import numpy as np

# Fewer samples cannot be told from chance; more would cost more to read.
_FEWEST_SAMPLES = 8
_MOST_SAMPLES = 32


def warn_of_drift(num_samples: int, read) -> bool:
    """Warns if the samples of a chain drift; returns whether they do.

    Args:
        num_samples: How many samples there are.
        read: Function from the number of a sample to its arrays.
    """
    count = min(num_samples, _MOST_SAMPLES) // 2 * 2
    if count < _FEWEST_SAMPLES:
        return False
    places = np.linspace(0, num_samples - 1, count).round().astype(int)
    samples = [list(read(place)) for place in places]
    share = drift(samples)
    if share <= largest_drift(count, independent_directions(samples)):
        return False
    warnings.warn(
        "`SampleCollector` has samples of a chain that still drifts: its "
        "second half lies about as far from its first as the samples of a "
        "half spread. Train longer, make `burn_in_epochs` larger, or have the "
        "sampler take longer steps (`average_speed`, `learning_rate`). Weights "
        "may drift along symmetries where predictions do not: see "
        "`ChainDiagnostics` and `keras_bdl.diagnostics.convergence`. "
        f"Received: {share:.2f} of the squares between the halves of {count} "
        f"samples, where a mixed chain has {1 / (count - 1):.2f}",
        stacklevel=3,
    )
    return True


def drift(samples):
    """Returns the share of the spread of samples that lies between halves.

    With `a` and `b` the means of the first and of the second n/2 samples,

        share = n/4 |b - a|^2 / sum_i |w_i - mean|^2                      (1)

    Independent samples have `1 / (n - 1)` in the mean. A chain that only
    diffuses from where it began has one half: `|b - a|^2` is then `L/3` of
    the variance that each unit of time adds over the length L, and the
    samples spread by `L/6` around their mean. One that moves in a straight
    line has three quarters.

    Args:
        samples: A sequence of n lists of arrays, in order; n is even.
    """
    between = total = 0.0
    half = len(samples) // 2
    for i in range(len(samples[0])):
        values = np.stack([np.asarray(s[i], "float64") for s in samples])
        step = values[half:].mean(0) - values[:half].mean(0)
        between += half / 2 * np.sum(np.square(step))
        total += np.sum(np.square(values - values.mean(0)))
    return float(between / total) if total > 0 else 1.0


def independent_directions(samples):
    """Returns the number of independent directions in which a chain moves.

    With the steps `d_i` from one sample to the next, of disjoint pairs,

        D = sum_ij |d_i|^2 |d_j|^2 / sum_ij (d_i . d_j)^2,   i != j       (2)

    For independent Gaussian samples with covariance C, both sums have
    expectations in the ratio `tr(C)^2 / tr(C^2)`: the number of directions, if
    all are equally wide. A single weight and a straight line have one.

    Args:
        samples: See `drift`; at least four.
    """
    products = 0.0
    for i in range(len(samples[0])):
        values = np.stack([np.ravel(s[i]) for s in samples]).astype("float64")
        steps = values[1::2] - values[::2]
        products = products + steps @ steps.T
    squares = np.diagonal(products)
    pairs = ~np.eye(len(squares), dtype=bool)
    cosines = np.square(products)[pairs].sum()
    if not cosines > 0:
        return 1.0
    return float(np.outer(squares, squares)[pairs].sum() / cosines)


def largest_drift(num_samples: int, directions: float = 1.0) -> float:
    """Returns the largest `drift` that is no reason for a warning.

    Slightly less than the one half of a diffusion, and at least five standard
    deviations above the mean of independent samples. In D directions of equal
    width, (1) is a Beta variable with the parameters D/2 and (n/2 - 1) D.

    Args:
        num_samples: n.
        directions: D. Defaults to `1.0`.
    """
    n = num_samples
    variance = 2 * (n - 2) / ((n - 1) ** 2 * (directions * (n - 1) + 2))
    return max(0.45, 1 / (n - 1) + 5 * math.sqrt(variance))
