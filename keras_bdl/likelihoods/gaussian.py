"""Negative log-likelihood of real numbers under Gaussian noise."""

import math

import keras
from keras import ops

from keras_bdl.arguments import ShowsArguments
from keras_bdl.likelihoods.targets import aligned_targets
from keras_bdl.likelihoods.targets import split_moments


@keras.saving.register_keras_serializable(package="keras_bdl")
class Gaussian(ShowsArguments, keras.losses.Loss):
    """Loss of a regression whose noise is known, learned or predicted.

        -log N(y; mean, stddev^2)
            = (y - mean)^2 / (2 stddev^2) + log stddev + log(2 pi) / 2    (1)

    summed over the targets of an example. Unlike the mean squared error it is
    a likelihood: priors, variational layers and samplers weigh it rightly, and
    `keras_bdl.predict` knows the noise from it.

    Args:
        noise_stddev: The standard deviation, if it is known. Defaults to
            `None`: the last axis of the output holds means, then as many
            standard deviations, as `LearnedStddev` makes them, the same for
            all inputs, or `mean_and_stddev`, of each input its own. Metrics
            of the mean are then those of `keras_bdl.metrics`, such as
            `RootMeanSquaredError`: those of Keras compare the targets with
            the standard deviations, too, and `keras_bdl.Model` refuses them.
        reduction: As of `keras.losses.Loss`. Defaults to
            `"sum_over_batch_size"`.
        name: Name of the loss. Defaults to `"gaussian"`.

    Call arguments:
        y_true: Targets, `(batch, targets)`, or `(batch,)` for one target.
        y_pred: Means, of the shape of `y_true`, or `(batch, 2 * targets)`
            where the network predicts the noise.

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
        reduction: str = "sum_over_batch_size",
        name: str = "gaussian",
    ):
        super().__init__(name=name, reduction=reduction)
        if noise_stddev is not None and not noise_stddev > 0:
            raise ValueError(
                "`noise_stddev` must be positive, or `None` where the network "
                f"predicts it. Received: noise_stddev={noise_stddev}"
            )
        self.noise_stddev = noise_stddev

    def call(self, y_true, y_pred):
        """Returns (1) of each example."""
        mean, variance = self.moments(y_pred)
        if len(mean.shape) == 1:  # one target an example, without its axis
            mean = ops.expand_dims(mean, -1)
            variance = ops.expand_dims(variance, -1)
        square = ops.square(aligned_targets(y_true, mean) - mean)
        constant = math.log(2 * math.pi)
        return ops.sum(  # (1)
            0.5 * (square / variance + ops.log(variance) + constant), axis=-1
        )

    def moments(self, outputs):
        """Returns the mean and the variance that an output stands for."""
        if self.noise_stddev is not None:
            return outputs, ops.full_like(outputs, self.noise_stddev**2)
        mean, stddev = split_moments(outputs, "`Gaussian(noise_stddev=...)`")
        return mean, ops.square(stddev)

    def get_config(self):
        """Returns every constructor argument."""
        return {**super().get_config(), "noise_stddev": self.noise_stddev}
