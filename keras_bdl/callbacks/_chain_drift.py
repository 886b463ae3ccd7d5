"""The check for drift in the samples of `SampleCollector`."""

import math
import warnings
from collections.abc import Callable
from collections.abc import Iterable

import numpy as np

# Fewer samples have no halves with a spread. More samples take longer to read.
_FEWEST_SAMPLES = 4
_MOST_SAMPLES = 32
# Added to the estimate of 1 / D from one pair of steps, which may be zero by
# chance.
_HIDDEN_BY_CHANCE = 0.01


def warn_of_drift(num_samples: int, read: Callable[[int], Iterable]) -> bool:
    """Warns if the samples of a chain drift, and returns whether they do."""
    count = min(num_samples, _MOST_SAMPLES) // 2 * 2
    if count < _FEWEST_SAMPLES:
        return False
    places = np.linspace(0, num_samples - 1, count).round().astype(int)
    samples = [list(read(place)) for place in places]
    share = drift(samples)
    if share <= largest_drift(count, independent_directions(samples)):
        return False
    warnings.warn(
        "`SampleCollector` has samples of a chain that still drifts: the "
        "distance between its two halves is about as large as the spread of "
        "the samples in a half. Train longer, raise `start_epoch`, or give "
        "the sampler longer steps (`average_speed`, `learning_rate`). Weights "
        "may drift along symmetries while predictions do not. Check this with "
        "`ChainDiagnostics` and `keras_bdl.diagnostics.convergence`. "
        f"Received: the share {share:.2f} of the variance of {count} samples "
        "lies between the halves. Independent samples have the share "
        f"{1 / (count - 1):.2f}",
        stacklevel=3,
    )
    return True


def drift(samples: list) -> float:
    """Returns the share of the variance that lies between two halves.

    With `a` and `b` the means of the first and the last n/2 samples,

        share = n/4 |b - a|^2 / sum_i |w_i - mean|^2                      (1)

    For independent samples, the share has the mean `1 / (n - 1)`. For a chain
    that only diffuses from its start, the share is one half: if each unit of
    time adds the variance v over the length L, `|b - a|^2` is `v L/3`, and the
    mean square distance of the samples from their mean is `v L/6`. For a chain
    that moves steadily along a straight line, the share is three quarters.
    """
    between = total = 0.0
    half = len(samples) // 2
    for i in range(len(samples[0])):
        values = np.stack([np.asarray(s[i], "float64") for s in samples])
        step = values[half:].mean(0) - values[:half].mean(0)
        between += half / 2 * np.sum(np.square(step))
        total += np.sum(np.square(values - values.mean(0)))
    return float(between / total) if total > 0 else 1.0


def independent_directions(samples: list) -> float:
    """Returns the number of independent directions in which a chain moves.

    With `d_i` the differences of disjoint pairs of successive samples,

        D = sum_ij |d_i|^2 |d_j|^2 / sum_ij (d_i . d_j)^2,   i != j       (2)

    For independent Gaussian samples with covariance C, the expectations of the
    two sums have the ratio `tr(C)^2 / tr(C^2)`. If the samples vary equally in
    k directions and not at all in the others, this ratio is k. For a single
    weight, and for a chain on a straight line, the ratio is 1.

    Four samples have one pair of differences, which may be orthogonal by
    chance. With P pairs, the function returns `1 / (1 / D + 0.01 / P)`: at most
    100 P. For four independent samples of two to ten weights, one warning in
    forty is false; for 50 weights or more, hardly any is.
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
    inverse = cosines / np.outer(squares, squares)[pairs].sum()
    inverse += _HIDDEN_BY_CHANCE / (pairs.sum() / 2)
    return float(1 / min(inverse, 1.0))


def largest_drift(num_samples: int, directions: float = 1.0) -> float:
    """Returns the largest `drift` that causes no warning.

    The limit is 0.45, slightly less than the drift of a diffusion, which is one
    half. For few samples, the limit is higher: it is at least five standard
    deviations above the mean drift of independent samples. For independent
    samples that vary equally in D directions, (1) of `drift` is a Beta variable
    with the parameters D/2 and (n/2 - 1) D.
    """
    n = num_samples
    variance = 2 * (n - 2) / ((n - 1) ** 2 * (directions * (n - 1) + 2))
    return max(0.45, 1 / (n - 1) + 5 * math.sqrt(variance))
