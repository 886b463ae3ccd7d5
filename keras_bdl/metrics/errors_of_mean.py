"""Streaming errors of the mean of Gaussian outputs."""

import keras
from keras import ops

from keras_bdl.likelihoods.targets import split_moments
from keras_bdl.metrics.gaussian_scores import GaussianMean


@keras.saving.register_keras_serializable(package="keras_bdl")
class RootMeanSquaredError(GaussianMean):
    """Root mean squared error of a network that also predicts the noise.

    The last axis of the output holds the means m and then as many standard
    deviations. The metric of this name in Keras compares the targets with
    both; where the network predicts the mean alone, use that one.

    Args:
        name: Name of the metric. Defaults to `"root_mean_squared_error"`.
        dtype: Type of the computation. Defaults to `None`,
            `keras.config.floatx()`.

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

    def __init__(self, name: str = "root_mean_squared_error", dtype=None):
        super().__init__(None, name, dtype)
        # Read by the callbacks of Keras that have `mode="auto"`.
        self._direction = "down"

    def score(self, z, stddev):
        """Returns `(y - m)^2`, value by value."""
        return ops.square(z * stddev)

    def result(self):
        """Returns the root of the mean."""
        return ops.sqrt(super().result())

    def get_config(self):
        """Returns every constructor argument."""
        config = super().get_config()
        del config["noise_stddev"]
        return config

    def _split(self, y_pred):
        return split_moments(y_pred, "`keras.metrics.RootMeanSquaredError()`")


@keras.saving.register_keras_serializable(package="keras_bdl")
class MeanAbsoluteError(GaussianMean):
    """Mean absolute error of a network that also predicts the noise.

    The last axis of the output holds the means m and then as many standard
    deviations. The metric of this name in Keras compares the targets with
    both; where the network predicts the mean alone, use that one.

    Args:
        name: Name of the metric. Defaults to `"mean_absolute_error"`.
        dtype: Type of the computation. Defaults to `None`,
            `keras.config.floatx()`.

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

    def __init__(self, name: str = "mean_absolute_error", dtype=None):
        super().__init__(None, name, dtype)
        # Read by the callbacks of Keras that have `mode="auto"`.
        self._direction = "down"

    def score(self, z, stddev):
        """Returns `|y - m|`, value by value."""
        return ops.abs(z * stddev)

    def get_config(self):
        """Returns every constructor argument."""
        config = super().get_config()
        del config["noise_stddev"]
        return config

    def _split(self, y_pred):
        return split_moments(y_pred, "`keras.metrics.MeanAbsoluteError()`")
