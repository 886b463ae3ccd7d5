"""The temperatures of a chain, and where they lie in equilibrium."""

import functools

import keras
import numpy as np
from keras import ops


class Virials:
    """For each variable, the sum over the steps of the mean of `w dU/dw`.

    At temperature T the mean of `w dU/dw` is T, for each weight, wherever the
    density vanishes at infinity. Gradients of minibatches will do, since the
    weights were there before the minibatch was drawn.

    Args:
        num_variables: How many variables the optimizer moves.
    """

    def __init__(self, num_variables: int):
        self.sums = [
            keras.Variable(0.0, dtype="float32", trainable=False)
            for _ in range(num_variables)
        ]

    def add(self, optimizer, index: int, variable, gradient):
        """Adds one step of one variable, with its gradient of U."""
        value = ops.cast(variable, "float32")
        optimizer.assign_add(self.sums[index], ops.mean(value * gradient))

    def assign(self, sums):
        """Goes on from these sums."""
        for variable, value in zip(self.sums, sums, strict=True):
            variable.assign(value)


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
