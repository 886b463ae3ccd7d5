"""Whether the samples of a chain still drift."""

import math
import warnings

import numpy as np

# So many samples tell, and more would cost more to read.
_MOST_SAMPLES = 32


def warn_of_drift(num_samples: int, read) -> bool:
    """Warns if the samples of a chain drift; returns whether they do.

    Args:
        num_samples: How many samples there are.
        read: Function from the number of a sample to its arrays.
    """
    count = min(num_samples, _MOST_SAMPLES) // 2 * 2
    most = largest_drift(count)
    if most >= 1.0:
        return False  # too few to tell
    places = np.linspace(0, num_samples - 1, count).round().astype(int)
    share = drift([list(read(place)) for place in places])
    if share <= most:
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


def largest_drift(num_samples: int) -> float:
    """Returns the largest `drift` that is no reason for a warning.

    Little less than the one half of a diffusion, and five standard deviations
    above the mean of independent samples at least. For a single weight (1) is
    a Beta variable of the parameters 1/2 and n/2 - 1; for several, independent
    or not, its deviation is no larger.

    Args:
        num_samples: n.
    """
    n = num_samples
    if n < 4:
        return math.inf
    variance = 2 * (n - 2) / ((n - 1) ** 2 * (n + 1))
    return max(0.45, 1 / (n - 1) + 5 * math.sqrt(variance))
