"""Where the kinetic temperature of a chain in equilibrium lies."""

import functools

import numpy as np


def kinetic_band(num_weights, confidence: float, rest_energy=None):
    """Returns the interval for the mean of `p K'(p) / T` over some weights.

    It is 1 in the mean. Without a speed limit `p^2/(m T)` is chi-square with
    one degree of freedom, so that the mean over n weights is a gamma variable
    of shape n/2. With one, the gamma variable of the right variance is taken.

    Args:
        num_weights: n.
        confidence: Probability of the interval.
        rest_energy: `m c^2 / T`, or `None` without a speed limit.

    Returns:
        The two ends.
    """
    from scipy.stats import gamma

    variance = 2.0 if rest_energy is None else _variance(float(rest_energy))
    shape = num_weights / variance
    tail = (1.0 - confidence) / 2.0
    return tuple(gamma.ppf([tail, 1.0 - tail], shape, scale=1.0 / shape))


@functools.cache
def _variance(a):
    """Variance of `p K'(p) / T` for one weight of hyperbolic momentum.

    With `p = m c sinh(r)`: `K/T = a (cosh r - 1)`, `p K'/T = a sinh r tanh r`,
    and the momentum has density `exp(-K/T) cosh r` in r.
    """
    from scipy.integrate import trapezoid

    r = np.linspace(0.0, np.arccosh(1.0 + 60.0 / a), 20_001)
    density = np.exp(-a * (np.cosh(r) - 1.0)) * np.cosh(r)
    density /= trapezoid(density, r)
    square = np.square(a * np.sinh(r) * np.tanh(r))
    return float(trapezoid(density * square, r)) - 1.0
