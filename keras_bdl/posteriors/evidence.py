"""What the data say of the precision of a Gaussian prior."""

import numpy as np


class Evidence:
    """The marginal likelihood of Laplace's method, as a function of delta.

    With weights w* at the maximum of the posterior, D of them, a prior
    `N(0, 1/delta)` and lambda_i the eigenvalues of the curvature of the data,

        log p(D | delta) = log p(D | w*) + log N(w*; 0, 1/delta)
                + D/2 log(2 pi) - 1/2 sum_i log(lambda_i + delta)
            = log p(D | w*) - delta/2 |w*|^2
                - 1/2 sum_i log(1 + lambda_i / delta)                     (1)

    whose derivative by log delta, twice,

        sum_i lambda_i / (lambda_i + delta) - delta |w*|^2                (2)

    falls from positive to negative values: there is one maximum.

    Args:
        eigenvalues: The lambda_i, in any number of arrays.
        square_norm: |w*|^2.
    """

    def __init__(self, eigenvalues: list, square_norm: float):
        self._eigenvalues = eigenvalues
        self._square_norm = square_norm

    def __call__(self, delta: float):
        """Returns (1) without its first term."""
        logs = sum(np.sum(np.log1p(e / delta)) for e in self._values())
        return float(-0.5 * (delta * self._square_norm + logs))  # (1)

    def effective_number(self, delta: float):
        """Returns the first term of (2), the weights that the data know.

        Args:
            delta: The prior precision.
        """
        return float(sum(np.sum(e / (e + delta)) for e in self._values()))

    def maximum(self):
        """Returns the delta at which (2) is zero."""
        from scipy.optimize import brentq

        size = sum(e.size for e in self._eigenvalues)
        if not self._square_norm > 0 or not any(
            np.any(e > 0) for e in self._eigenvalues
        ):
            raise ValueError(
                "The marginal likelihood has no maximum: the weights are all "
                "zero, or do not change what the model says. Give a number "
                "for `prior_precision`. "
                f"Received: |w|^2={self._square_norm:g}"
            )

        def slope(log_delta):
            delta = np.exp(log_delta)
            known = self.effective_number(delta)
            return known - delta * self._square_norm  # (2)

        # No more than all weights are known, and if delta is small enough,
        # at least one.
        high = np.log(size / self._square_norm)
        low = high
        while slope(low) <= 0:
            low -= 2.0
        if low == high:
            return float(np.exp(high))
        return float(np.exp(brentq(slope, low, high, xtol=1e-10)))

    def _values(self):
        return (np.asarray(e, "float64") for e in self._eigenvalues)
