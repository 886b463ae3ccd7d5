"""Coverage of the central interval of a Gaussian output."""

import math

import keras
from keras import ops

from keras_bdl.metrics.gaussian_mean import GaussianMean


@keras.saving.register_keras_serializable(package="keras_bdl")
class IntervalCoverage(GaussianMean):
    """Share of the target values inside their central predictive interval.

    A calibrated model has a coverage equal to `level`; more is too cautious,
    less is over-confident.

    Args:
        level: Probability that the interval holds, between 0 and 1. Defaults
            to `0.95`.
        noise_stddev: Standard deviation of the noise. Defaults to
            `None`: the last axis of the model's output holds the means and
            then as many (positive) standard deviations.
        name: Name of the metric. Defaults to `"interval_coverage"`.
        dtype: Type of the computation. Defaults to `None`,
            `keras.config.floatx()`.

    Call arguments:
        y_true: Targets, `(batch, targets)`, or `(batch,)` for one target.
        y_pred: `(batch, 2 * targets)`; the shape of `y_true` if
            `noise_stddev` is given.
        sample_weight: Weight of each example.
    """

    def __init__(
        self,
        level: float = 0.95,
        noise_stddev: float | None = None,
        name: str = "interval_coverage",
        dtype=None,
    ):
        super().__init__(noise_stddev, name, dtype)
        if not 0 < level < 1:
            raise ValueError(
                f"`level` must be between 0 and 1. Received: level={level}"
            )
        self.level = level

    def score(self, z, stddev):
        """Returns 1 inside the interval and 0 outside."""
        inner = ops.erf(ops.abs(z) / math.sqrt(2.0))
        inside = ops.cast(inner <= self.level, self.dtype)
        # A comparison would turn NaN into "outside".
        return ops.where(ops.isnan(inner), inner, inside)

    def get_config(self):
        """Returns every constructor argument."""
        return {**super().get_config(), "level": self.level}
