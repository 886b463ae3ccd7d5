"""Marginal likelihood of a Laplace approximation."""

from collections.abc import Sequence

import numpy as np


class Evidence:
    """The marginal likelihood of a `Laplace`, as a function of delta.

    With d weights w* at the maximum of the posterior, a prior `N(0, 1/delta)`
    and lambda_i the eigenvalues of the curvature of the data,

        log p(D | delta) = log p(D | w*) + log N(w*; 0, 1/delta)
                + d/2 log(2 pi) - 1/2 sum_i log(lambda_i + delta)
            = log p(D | w*) - delta/2 |w*|^2
                - 1/2 sum_i log(1 + lambda_i / delta)                     (1)

    Twice the derivative of (1) with respect to log delta is

        sum_i lambda_i / (lambda_i + delta) - delta |w*|^2                (2)

    which falls from positive to negative values, so (1) has one maximum.

    Args:
        eigenvalues: The lambda_i, in any number of arrays.
        square_norm: |w*|^2.
    """

    def __init__(self, eigenvalues: Sequence[np.ndarray], square_norm: float):
        self._eigenvalues = eigenvalues
        self._square_norm = square_norm

    def __call__(self, delta: float) -> float:
        """Returns the log marginal likelihood (1) without `log p(D | w*)`.

        Args:
            delta: The prior precision.
        """
        logs = sum(np.sum(np.log1p(e / delta)) for e in self._values())
        return float(-0.5 * (delta * self._square_norm + logs))  # (1)

    def effective_number(self, delta: float) -> float:
        """Returns the effective number of weights that the data determine.

        The number is the first sum in (2) of this class.

        Args:
            delta: The prior precision.
        """
        return float(sum(np.sum(e / (e + delta)) for e in self._values()))

    def prior_of_weights(self) -> float:
        """Returns d / |w*|^2, the delta that fits the weights themselves."""
        if not self._square_norm > 0:
            raise ValueError(
                "The trained weights must not all be zero. Pass a number as "
                "`prior_precision`. Received: |w|^2=0"
            )
        return sum(e.size for e in self._eigenvalues) / self._square_norm

    def maximum(self) -> float:
        """Returns the delta with the highest marginal likelihood."""
        from scipy.optimize import brentq

        size = sum(e.size for e in self._eigenvalues)
        if not self._square_norm > 0 or not any(
            np.any(e > 0) for e in self._eigenvalues
        ):
            raise ValueError(
                "The marginal likelihood has no maximum, because all weights "
                "are zero or have no effect on the outputs. Pass a number as "
                "`prior_precision`. "
                f"Received: |w|^2={self._square_norm:g}"
            )

        def slope(log_delta):
            delta = np.exp(log_delta)
            known = self.effective_number(delta)
            return known - delta * self._square_norm  # (2)

        # Bounds of the root. At `high`, (2) is not positive, since its first
        # sum is at most `size`. For a small delta, (2) is positive.
        high = np.log(size / self._square_norm)
        low = high
        while slope(low) <= 0:
            low -= 2.0
        if low == high:
            return float(np.exp(high))
        return float(np.exp(brentq(slope, low, high, xtol=1e-10)))

    def _values(self):
        return (np.asarray(e, "float64") for e in self._eigenvalues)
