"""Log-likelihood of a Gaussian output."""

import math

import keras
from keras import ops

from keras_bdl.metrics.gaussian_mean import GaussianMean


@keras.saving.register_keras_serializable(package="keras_bdl")
class GaussianLogLikelihood(GaussianMean):
    """Mean over the target values of their Gaussian log density.

        log N(y; m, s^2) = -log(2 pi)/2 - log s - ((y - m)/s)^2 / 2       (1)

    Several targets of one example are averaged, as Keras does, not summed.

    Args:
        noise_stddev: `s`, the standard deviation of the noise. Defaults to
            `None`: the last axis of the model's output holds the means and
            then as many (positive) standard deviations.
        name: Name of the metric. Defaults to `"gaussian_log_likelihood"`.
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
        noise_stddev: float | None = None,
        name: str = "gaussian_log_likelihood",
        dtype=None,
    ):
        super().__init__(noise_stddev, name, dtype)
        # Read by the callbacks of Keras that have `mode="auto"`.
        self._direction = "up"

    def score(self, z, stddev):
        """Returns (1), value by value."""
        constant = 0.5 * math.log(2.0 * math.pi)
        return -constant - ops.log(stddev) - 0.5 * ops.square(z)  # (1)
