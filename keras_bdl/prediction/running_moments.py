"""Mean and variance of arrays that come one after the other."""

import numpy as np


class RunningMoments:
    """Welford's recursion: no cancellation, nothing kept of the past.

    mean_s = mean_(s-1) + (x_s - mean_(s-1)) / s                      (1)
    m2_s = m2_(s-1) + (x_s - mean_(s-1)) (x_s - mean_s)               (2)
    variance = m2 / s                                                 (3)
    """

    def __init__(self):
        self.count = 0
        self.mean = None
        self._m2 = None

    def update(self, x):
        """Takes in the next array."""
        self.count += 1
        if self.count == 1:
            self.mean = np.array(x)
            self._m2 = np.zeros_like(self.mean)
            return
        delta = x - self.mean
        self.mean += delta / self.count  # (1)
        delta *= x - self.mean
        self._m2 += delta  # (2)

    @property
    def variance(self):
        """(3)."""
        return self._m2 / self.count
