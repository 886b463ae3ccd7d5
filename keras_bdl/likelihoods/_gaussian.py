"""Negative log-likelihood of real numbers under Gaussian noise."""

import math

import keras
from keras import ops

from keras_bdl._aliases import ArrayLike
from keras_bdl._arguments import ShowsArguments
from keras_bdl._arguments import check_number
from keras_bdl.likelihoods._targets import aligned_targets
from keras_bdl.likelihoods._targets import split_moments


@keras.saving.register_keras_serializable(package="keras_bdl")
class Gaussian(ShowsArguments, keras.losses.Loss):
    """Loss of a regression whose noise is known, learned or predicted.

        -log N(y; mean, stddev^2)
            = (y - mean)^2 / (2 stddev^2) + log stddev + log(2 pi) / 2    (1)

    summed over the targets of an example. Use this loss instead of the mean
    squared error, which implies a fixed noise. With the noise of your data,
    priors, variational layers and samplers weigh the data correctly, and
    `keras_bdl.predict` uses the noise.

    Args:
        noise_stddev: Standard deviation of the noise, if it is known. Defaults
            to `None`: the last axis of the output holds means, then as many
            standard deviations. The layer `LearnedStddev` gives all inputs the
            same standard deviations. The activation `mean_and_stddev` gives
            each input its own. For such outputs, use metrics of
            `keras_bdl.metrics`, such as `RootMeanSquaredError`.
            `keras_bdl.Model` raises an error for metrics of Keras, which would
            also compare the targets with the standard deviations.
        reduction: How to reduce the loss over a batch, as in
            `keras.losses.Loss`. Defaults to `"sum_over_batch_size"`.
        name: Name of the loss. Defaults to `"gaussian"`.

    Call arguments:
        y_true: Targets, `(batch, targets)`, or `(batch,)` for one target.
        y_pred: Means, of the shape of `y_true`. With `noise_stddev=None`, means
            and standard deviations, `(batch, 2 * targets)`.

    Example:

    ```python
    model = keras.Sequential(
        [
            keras.layers.Dense(50, activation="tanh"),
            keras.layers.Dense(
                2, activation=keras_bdl.likelihoods.mean_and_stddev
            ),
        ]
    )
    model.compile("adam", loss=keras_bdl.likelihoods.Gaussian())
    ```
    """

    def __init__(
        self,
        noise_stddev: float | None = None,
        *,
        reduction: str = "sum_over_batch_size",
        name: str = "gaussian",
    ):
        super().__init__(name=name, reduction=reduction)
        if noise_stddev is not None:
            check_number("noise_stddev", noise_stddev, above=0.0)
        self.noise_stddev = noise_stddev

    def call(self, y_true, y_pred):
        """Returns (1) of each example."""
        mean, variance = self.moments(y_pred)
        if len(mean.shape) == 1:  # one target, without an axis
            mean = ops.expand_dims(mean, -1)
            variance = ops.expand_dims(variance, -1)
        square = ops.square(aligned_targets(y_true, mean) - mean)
        constant = math.log(2 * math.pi)
        return ops.sum(  # (1)
            0.5 * (square / variance + ops.log(variance) + constant), axis=-1
        )

    def moments(self, outputs: ArrayLike) -> tuple[ArrayLike, ArrayLike]:
        """Returns the mean and the variance that an output describes.

        Args:
            outputs: Outputs of the network.
        """
        if self.noise_stddev is not None:
            return outputs, ops.full_like(outputs, self.noise_stddev**2)
        mean, stddev = split_moments(outputs, "`Gaussian(noise_stddev=...)`")
        return mean, ops.square(stddev)

    def get_config(self):
        """Returns every constructor argument."""
        return {**super().get_config(), "noise_stddev": self.noise_stddev}
