"""Streaming errors of the predicted mean, for Gaussian outputs."""

from typing import Any

import keras
from keras import ops

from keras_bdl.likelihoods._gaussian import split_moments
from keras_bdl.metrics._gaussian_scores import GaussianMetric


class ErrorOfMean(GaussianMetric):
    """Base of the errors of the mean, for outputs that also hold the noise."""

    # Keras callbacks with `mode="auto"` read this direction.
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

    def result(self):
        """Returns the square root of the mean squared error."""
        return ops.sqrt(super().result())


@keras.saving.register_keras_serializable(package="keras_bdl")
class MeanAbsoluteError(ErrorOfMean):
    """Mean absolute error of a network that also predicts the noise.

    Use it if the last axis of the output holds the means, then as many
    standard deviations. The Keras metric of this name would compare the
    targets with both. Use the Keras metric if the network predicts the mean
    alone.

    Call arguments:
        y_true: Targets, `(batch, targets)`, or `(batch,)` for one target.
        y_pred: `(batch, 2 * targets)`.
        sample_weight: Weight of each example.

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
