"""Temperatures of a chain and their distribution in equilibrium."""

import functools
from typing import Any

import keras
import numpy as np
from keras import ops


class Virials:
    """Sums of `w dU/dw` over the steps, one number for each variable.

    Each step adds the mean of `w dU/dw` over the weights of the variable. At
    temperature T, the expectation of `w dU/dw` is T for each weight if the
    density vanishes at infinity. Gradients of minibatches suffice, because the
    weights at which a step computes its gradient do not depend on the minibatch
    of that step.

    Args:
        num_variables: Number of variables that the sampler updates.
    """

    def __init__(self, num_variables: int):
        self.sums = [
            keras.Variable(0.0, dtype="float32", trainable=False)
            for _ in range(num_variables)
        ]

    def add(
        self,
        optimizer: keras.optimizers.Optimizer,
        index: int,
        variable: Any,
        gradient: Any,
    ) -> None:
        """Adds one step of one variable, given the gradient of U."""
        value = ops.cast(variable, "float32")
        optimizer.assign_add(self.sums[index], ops.mean(value * gradient))

    def assign(self, sums: Any) -> None:
        """Sets the sums."""
        for variable, value in zip(self.sums, sums, strict=True):
            variable.assign(value)


def kinetic_band(
    num_weights: int, confidence: float, rest_energy: float | None = None
) -> tuple[float, float]:
    """Returns the interval for the mean of `p K'(p) / T` over some weights.

    The expectation is 1. Without a speed limit, `p K'(p) / T = p^2 / (m T)` is
    chi-square with one degree of freedom, and its mean over n weights is a
    gamma variable of shape n/2. With a speed limit c, the function uses a gamma
    variable with the variance of the mean.

    Args:
        num_weights: n.
        confidence: Probability of the interval.
        rest_energy: `m c^2 / T` with the mass m, or `None` without a speed
            limit.

    Returns:
        The two ends of the interval.
    """
    from scipy.stats import gamma

    variance = 2.0 if rest_energy is None else _variance(float(rest_energy))
    shape = num_weights / variance
    tail = (1.0 - confidence) / 2.0
    return tuple(gamma.ppf([tail, 1.0 - tail], shape, scale=1.0 / shape))


@functools.cache
def _variance(a):
    """Returns the variance of `p K'(p) / T` for a weight with a speed limit.

    With `a = m c^2 / T` and `p = m c sinh(r)`, we have `K/T = a (cosh r - 1)`
    and `p K'/T = a sinh r tanh r`. The density of r is proportional to
    `exp(-K/T) cosh r`.
    """
    from scipy.integrate import trapezoid

    r = np.linspace(0.0, np.arccosh(1.0 + 60.0 / a), 20_001)
    density = np.exp(-a * (np.cosh(r) - 1.0)) * np.cosh(r)
    density /= trapezoid(density, r)
    square = np.square(a * np.sinh(r) * np.tanh(r))
    return float(trapezoid(density * square, r)) - 1.0
