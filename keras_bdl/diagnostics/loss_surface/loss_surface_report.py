"""What reports on the loss around a network have in common."""

import dataclasses

import numpy as np

from keras_bdl.reports.report import Report


@dataclasses.dataclass(frozen=True)
class LossSurfaceReport(Report):
    """Loss at many places, as `LossCrossSection` and `LossPlane` say it."""

    examples: int
    distances: list
    loss: list
    penalty: list
    error: list

    @property
    def total(self) -> np.ndarray:
        """Loss and penalty, an array in the shape of `loss`."""
        return np.array(self.loss) + np.array(self.penalty)

    @property
    def log_density(self) -> np.ndarray:
        """That of the posterior but for a constant, zero at its highest."""
        return -self.examples * (self.total - np.nanmin(self.total))
