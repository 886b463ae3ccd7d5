"""Streaming scores of Gaussian outputs, averaged over examples."""

import math

import keras
from keras import ops

from keras_bdl.likelihoods.targets import aligned_targets
from keras_bdl.likelihoods.targets import split_moments


class GaussianMean(keras.metrics.Mean):
    """Weighted mean of a score of a Gaussian predictive density.

    Args:
        noise_stddev: Standard deviation of the noise, or `None` if the model's
            output holds it.
        name: Name of the metric.
        dtype: Type of the computation, `None` for `keras.config.floatx()`.

    Attributes:
        reads_noise: Whether the metric takes outputs that hold standard
            deviations after the means. `keras_bdl.Model` refuses metrics
            without this attribute there.
    """

    reads_noise = True

    def __init__(self, noise_stddev: float | None, name: str, dtype):
        super().__init__(name=name, dtype=dtype)
        if noise_stddev is not None and not noise_stddev > 0:
            raise ValueError(
                "`noise_stddev` must be positive, or `None` where the last "
                "axis of the output holds means, then standard deviations. "
                f"Received: noise_stddev={noise_stddev}"
            )
        self.noise_stddev = noise_stddev

    def update_state(self, y_true, y_pred, sample_weight=None):
        """Adds the scores of a batch."""
        mean, stddev = self._split(ops.cast(y_pred, self.dtype))
        # A metric cannot raise in a compiled step: NaN is what it can show.
        stddev = ops.where(stddev > 0, stddev, float("nan"))
        z = (aligned_targets(y_true, mean) - mean) / stddev
        super().update_state(self.score(z, stddev), sample_weight)

    def score(self, z, stddev):
        """Returns the score of standardised residuals, value by value."""
        raise NotImplementedError

    def _split(self, y_pred):
        if self.noise_stddev is None:
            name = type(self).__name__
            return split_moments(y_pred, f"`{name}(noise_stddev=...)`")
        if len(y_pred.shape) == 1:
            y_pred = ops.expand_dims(y_pred, -1)
        return y_pred, ops.cast(self.noise_stddev, self.dtype)

    def get_config(self):
        """Returns every constructor argument."""
        return {**super().get_config(), "noise_stddev": self.noise_stddev}


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
