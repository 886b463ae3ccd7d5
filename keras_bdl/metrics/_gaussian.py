"""Streaming scores of Gaussian outputs, and errors of their means."""

import math
from typing import Any

import keras
from keras import ops

from keras_bdl._arguments import check_number
from keras_bdl.likelihoods._gaussian import aligned_targets
from keras_bdl.likelihoods._gaussian import split_moments


class GaussianMetric(keras.metrics.Mean):
    """Base of the metrics of Gaussian outputs: a weighted mean of a score.

    The last axis of the output holds the means, then as many positive
    standard deviations.

    Attributes:
        reads_noise: Whether the metric reads the standard deviations. If an
            output holds standard deviations, `keras_bdl.Model` refuses metrics
            that do not read them.
    """

    reads_noise = True
    default_name: str

    def __init__(self, *, name: str | None = None, dtype: str | None = None):
        super().__init__(name=name or self.default_name, dtype=dtype)

    def update_state(
        self, y_true: Any, y_pred: Any, sample_weight: Any = None
    ) -> None:
        """Adds the scores of a batch."""
        mean, stddev = self.split(ops.cast(y_pred, self.dtype))
        # A metric cannot raise an error in a compiled step, but can show NaN.
        stddev = ops.where(stddev > 0, stddev, float("nan"))
        z = (aligned_targets(y_true, mean) - mean) / stddev
        super().update_state(self.score(z, stddev), sample_weight)

    def score(self, z: Any, stddev: Any) -> Any:
        """Returns a score of `z = (target - mean) / stddev` for each value."""
        raise NotImplementedError

    def split(self, y_pred: Any) -> tuple[Any, Any]:
        """Returns the means and the standard deviations in an output."""
        raise NotImplementedError


class GaussianScore(GaussianMetric):
    """Base of the scores of a Gaussian predictive density."""

    def __init__(
        self,
        noise_stddev: float | None = None,
        *,
        name: str | None = None,
        dtype: str | None = None,
    ):
        super().__init__(name=name, dtype=dtype)
        if noise_stddev is not None:
            check_number("noise_stddev", noise_stddev, above=0.0)
        self.noise_stddev = noise_stddev

    def split(self, y_pred: Any) -> tuple[Any, Any]:
        """Returns the means and the standard deviations in an output."""
        if self.noise_stddev is None:
            name = type(self).__name__
            return split_moments(y_pred, f"`{name}(noise_stddev=...)`")
        if len(y_pred.shape) == 1:
            y_pred = ops.expand_dims(y_pred, -1)
        return y_pred, ops.cast(self.noise_stddev, self.dtype)

    def get_config(self) -> dict[str, Any]:
        """Returns every constructor argument."""
        return {**super().get_config(), "noise_stddev": self.noise_stddev}


@keras.saving.register_keras_serializable(package="keras_bdl")
class GaussianLogLikelihood(GaussianScore):
    """Mean log density of the target values.

    Use it to score the predicted mean and the predicted noise together. With
    m the mean and s the standard deviation,

        log N(y; m, s^2) = -log(2 pi)/2 - log s - ((y - m)/s)^2 / 2       (1)

    Several targets of one example are averaged, not summed.

    Args:
        noise_stddev: Standard deviation of the noise. The output then holds
            the means alone. Defaults to `None`: the last axis of the output
            holds the means, then as many positive standard deviations.
        name: Name of the metric. Defaults to `None`, the name of the class in
            snake case.
        dtype: Dtype of the computation. Defaults to `None`,
            `keras.config.floatx()`.

    Call arguments:
        y_true: Targets, `(batch, targets)`, or `(batch,)` for one target.
        y_pred: `(batch, 2 * targets)`; the shape of `y_true` if
            `noise_stddev` is given.
        sample_weight: Weight of each example.

    Example:

    ```python
    metric = keras_bdl.metrics.GaussianLogLikelihood()
    means_and_stddevs = np.array([[0.0, 1.0], [2.0, 0.5]])
    metric.update_state(np.array([[0.5], [2.0]]), means_and_stddevs)
    metric.result()
    ```
    """

    # Keras callbacks with `mode="auto"` read this direction.
    _direction = "up"
    default_name = "gaussian_log_likelihood"

    def score(self, z: Any, stddev: Any) -> Any:
        """Returns (1) for each target value."""
        constant = 0.5 * math.log(2.0 * math.pi)
        return -constant - ops.log(stddev) - 0.5 * ops.square(z)  # (1)


@keras.saving.register_keras_serializable(package="keras_bdl")
class ContinuousRankedProbabilityScore(GaussianScore):
    """Mean continuous ranked probability score (CRPS) of the targets.

    Use it as a score in the units of the target. For a prediction without
    noise, the CRPS equals the absolute error. The CRPS is the integral of
    `(F(t) - 1[t >= y])^2` over t, with F the predictive distribution function.
    For a Gaussian, with `z = (y - m)/s`,

        CRPS = s (z (2 Phi(z) - 1) + 2 phi(z) - 1/sqrt(pi))               (1)

    Args:
        noise_stddev, name, dtype: As in
            `keras_bdl.metrics.GaussianLogLikelihood`.

    The call arguments are those of `keras_bdl.metrics.GaussianLogLikelihood`.

    Example:

    ```python
    metric = keras_bdl.metrics.ContinuousRankedProbabilityScore()
    means_and_stddevs = np.array([[0.0, 1.0], [2.0, 0.5]])
    metric.update_state(np.array([[0.5], [2.0]]), means_and_stddevs)
    metric.result()
    ```

    Reference:
        - Gneiting and Raftery, 2007, Strictly proper scoring rules,
          prediction, and estimation, JASA 102, section 4.2 (there with the
          opposite sign)
    """

    _direction = "down"
    default_name = "continuous_ranked_probability_score"

    def score(self, z: Any, stddev: Any) -> Any:
        """Returns (1) for each target value."""
        twice_density = math.sqrt(2.0 / math.pi) * ops.exp(-0.5 * z * z)
        inner = z * ops.erf(z / math.sqrt(2.0)) + twice_density
        return stddev * (inner - 1.0 / math.sqrt(math.pi))  # (1)


@keras.saving.register_keras_serializable(package="keras_bdl")
class IntervalCoverage(GaussianScore):
    """Fraction of target values inside their central predictive interval.

    Use it to check calibration: a calibrated model has a coverage of `level`.
    A higher coverage means that the intervals are too wide. A lower coverage
    means over-confidence.

    Args:
        level: Probability of the interval, between 0 and 1. Defaults to
            `0.95`.
        noise_stddev, name, dtype: As in
            `keras_bdl.metrics.GaussianLogLikelihood`.

    The call arguments are those of `keras_bdl.metrics.GaussianLogLikelihood`.

    Example:

    ```python
    metric = keras_bdl.metrics.IntervalCoverage(0.95)
    means_and_stddevs = np.array([[0.0, 1.0], [2.0, 0.5]])
    metric.update_state(np.array([[0.5], [2.0]]), means_and_stddevs)
    metric.result()
    ```
    """

    default_name = "interval_coverage"

    def __init__(
        self,
        level: float = 0.95,
        *,
        noise_stddev: float | None = None,
        name: str | None = None,
        dtype: str | None = None,
    ):
        super().__init__(noise_stddev, name=name, dtype=dtype)
        check_number("level", level, above=0.0, below=1.0)
        self.level = level

    def score(self, z: Any, stddev: Any) -> Any:
        """Returns 1 inside the interval and 0 outside."""
        inner = ops.erf(ops.abs(z) / math.sqrt(2.0))
        inside = ops.cast(inner <= self.level, self.dtype)
        # A comparison with NaN is false, which would count as outside.
        return ops.where(ops.isnan(inner), inner, inside)

    def get_config(self) -> dict[str, Any]:
        """Returns every constructor argument."""
        return {**super().get_config(), "level": self.level}


class ErrorOfMean(GaussianMetric):
    """Base of the errors of the mean, for outputs that also hold the noise."""

    _direction = "down"

    def split(self, y_pred: Any) -> tuple[Any, Any]:
        """Returns the means and the standard deviations in an output."""
        return split_moments(y_pred, f"`keras.metrics.{type(self).__name__}()`")


@keras.saving.register_keras_serializable(package="keras_bdl")
class RootMeanSquaredError(ErrorOfMean):
    """Root mean squared error of a network that also predicts the noise.

    Use it if the last axis of the output holds the means, then as many
    standard deviations. The Keras metric of this name would compare the
    targets with both. Use the Keras metric if the network predicts the mean
    alone.

    Args:
        name, dtype: As in `keras_bdl.metrics.GaussianLogLikelihood`.

    Call arguments:
        y_true: Targets, `(batch, targets)`, or `(batch,)` for one target.
        y_pred: `(batch, 2 * targets)`.
        sample_weight: Weight of each example.

    Example:

    ```python
    model.compile(
        "adam",
        loss=keras_bdl.likelihoods.Gaussian(),
        metrics=[keras_bdl.metrics.RootMeanSquaredError()],
    )
    ```
    """

    default_name = "root_mean_squared_error"

    def score(self, z: Any, stddev: Any) -> Any:
        """Returns `(y - m)^2` for each target value."""
        return ops.square(z * stddev)

    def result(self) -> Any:
        """Returns the square root of the mean squared error."""
        return ops.sqrt(super().result())


@keras.saving.register_keras_serializable(package="keras_bdl")
class MeanAbsoluteError(ErrorOfMean):
    """Mean absolute error of a network that also predicts the noise.

    Use it if the last axis of the output holds the means, then as many
    standard deviations. The Keras metric of this name would compare the
    targets with both. Use the Keras metric if the network predicts the mean
    alone.

    Args:
        name, dtype: As in `keras_bdl.metrics.GaussianLogLikelihood`.

    The call arguments are those of `keras_bdl.metrics.RootMeanSquaredError`.

    Example:

    ```python
    model.compile(
        "adam",
        loss=keras_bdl.likelihoods.Gaussian(),
        metrics=[keras_bdl.metrics.MeanAbsoluteError()],
    )
    ```
    """

    default_name = "mean_absolute_error"

    def score(self, z: Any, stddev: Any) -> Any:
        """Returns `|y - m|` for each target value."""
        return ops.abs(z * stddev)
