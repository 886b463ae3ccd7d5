"""Continuous ranked probability score of a Gaussian output."""

import math

import keras
from keras import ops

from keras_bdl.metrics.gaussian_mean import GaussianMean


@keras.saving.register_keras_serializable(package="keras_bdl")
class ContinuousRankedProbabilityScore(GaussianMean):
    """Mean over the target values of the CRPS of a Gaussian density.

    The integral of `(F(t) - 1[t >= y])^2` over t, with F the predictive
    distribution function, is in the units of the target and generalises the
    absolute error. For a Gaussian, with `z = (y - m)/s`,

        CRPS = s (z (2 Phi(z) - 1) + 2 phi(z) - 1/sqrt(pi))               (1)

    Args:
        noise_stddev: `s`, the standard deviation of the noise. Defaults to
            `None`: the last axis of the model's output holds the means and
            then as many (positive) standard deviations.
        name: Name of the metric. Defaults to
            `"continuous_ranked_probability_score"`.
        dtype: Type of the computation. Defaults to `None`,
            `keras.config.floatx()`.

    Call arguments:
        y_true: Targets, `(batch, targets)`, or `(batch,)` for one target.
        y_pred: `(batch, 2 * targets)`; the shape of `y_true` if
            `noise_stddev` is given.
        sample_weight: Weight of each example.

    Reference:
        - Gneiting and Raftery, 2007, Strictly proper scoring rules,
          prediction, and estimation, JASA 102, section 4.2 (there with the
          opposite sign)
    """

    def __init__(
        self,
        noise_stddev: float | None = None,
        name: str = "continuous_ranked_probability_score",
        dtype=None,
    ):
        super().__init__(noise_stddev, name, dtype)
        # Read by the callbacks of Keras that have `mode="auto"`.
        self._direction = "down"

    def score(self, z, stddev):
        """Returns (1), value by value."""
        twice_density = math.sqrt(2.0 / math.pi) * ops.exp(-0.5 * z * z)
        inner = z * ops.erf(z / math.sqrt(2.0)) + twice_density
        return stddev * (inner - 1.0 / math.sqrt(math.pi))  # (1)
