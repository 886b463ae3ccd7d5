"""Regression with Gaussian noise: the loss, and the noise that it takes."""

import math
from typing import Any

import keras
from keras import ops

from keras_bdl._aliases import ArrayLike
from keras_bdl._arguments import ShowsArguments
from keras_bdl._arguments import check_number

# Without this bound, the likelihood is infinite at zero noise.
_SMALLEST = 1e-3


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

    def call(self, y_true: Any, y_pred: Any) -> Any:
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

    def get_config(self) -> dict[str, Any]:
        """Returns every constructor argument."""
        return {**super().get_config(), "noise_stddev": self.noise_stddev}


@keras.saving.register_keras_serializable(package="keras_bdl")
def mean_and_stddev(x: ArrayLike) -> ArrayLike:
    """Turns outputs into means and positive standard deviations.

    Use this activation in the last layer of a regression. The first half of
    the last axis stays unchanged. The second half becomes
    `softplus(x) + 0.001`.

    Args:
        x: Tensor with an even number of entries on the last axis.

    Returns:
        A tensor of the same shape, for `keras_bdl.likelihoods.Gaussian` and
        the regression metrics.

    Example:

    ```python
    layer = keras.layers.Dense(
        2, activation=keras_bdl.likelihoods.mean_and_stddev
    )
    ```
    """
    if x.shape[-1] % 2:
        raise ValueError(
            "`x` must have an even number of entries on its last axis: means, "
            "then as many standard deviations. Double the units of the layer. "
            f"Received: x of shape {tuple(x.shape)}"
        )
    mean, raw = ops.split(x, 2, axis=-1)
    return ops.concatenate([mean, ops.softplus(raw) + _SMALLEST], axis=-1)


@keras.saving.register_keras_serializable(package="keras_bdl")
class LearnedStddev(keras.layers.Layer):
    """Adds learned standard deviations to the means of a regression.

    The layer learns one standard deviation for each target, the same for all
    inputs,

        stddev = softplus(raw_stddev) + 0.001                             (1)

    If the noise depends on the input, use the activation
    `keras_bdl.likelihoods.mean_and_stddev` instead. `keras_bdl.convert` leaves
    this layer unchanged.

    Args:
        initial_stddev: Initial value of (1), in the units of the targets.
            Defaults to `1.0`.
        **kwargs: Arguments of `keras.layers.Layer`.

    Call arguments:
        inputs: Means, `(..., targets)`.

    Output shape:
        `(..., 2 * targets)`, for `keras_bdl.likelihoods.Gaussian`.

    Example:

    ```python
    model = keras.Sequential(
        [
            keras.layers.Dense(50, activation="tanh"),
            keras.layers.Dense(1),
            keras_bdl.likelihoods.LearnedStddev(),
        ]
    )
    model.compile("adam", loss=keras_bdl.likelihoods.Gaussian())
    ```
    """

    def __init__(self, initial_stddev: float = 1.0, **kwargs: Any):
        super().__init__(**kwargs)
        check_number("initial_stddev", initial_stddev, above=_SMALLEST)
        self.initial_stddev = initial_stddev

    def build(self, input_shape: Any) -> None:
        """Creates `raw_stddev`, one number per target."""
        above = self.initial_stddev - _SMALLEST
        # A form of the inverse of softplus that does not overflow.
        raw = above + math.log(-math.expm1(-above))
        self.raw_stddev = self.add_weight(
            shape=(input_shape[-1],),
            initializer=keras.initializers.Constant(raw),
            name="raw_stddev",
        )

    def call(self, inputs: Any) -> Any:
        """Returns the means, then the standard deviations."""
        stddev = ops.softplus(self.raw_stddev) + _SMALLEST  # (1)
        stddev = ops.broadcast_to(stddev, ops.shape(inputs))
        return ops.concatenate([inputs, stddev], axis=-1)

    def compute_output_shape(self, input_shape: Any) -> tuple:
        """Doubles the last dimension."""
        return (*input_shape[:-1], 2 * input_shape[-1])

    def get_config(self) -> dict[str, Any]:
        """Returns all arguments."""
        return {**super().get_config(), "initial_stddev": self.initial_stddev}


def aligned_targets(y_true: Any, mean: Any) -> Any:
    """Returns targets in the shape and the dtype of the predicted mean.

    Without this function, shapes `(batch,)` and `(batch, 1)` would broadcast to
    `(batch, batch)`. The mean has the shape of the targets, or one more axis of
    size 1 at the end.
    """
    shape = tuple(mean.shape)
    if shape[-1:] == (1,) and len(y_true.shape) == len(shape) - 1:
        y_true = ops.expand_dims(y_true, -1)
    known = [
        (a, b)
        for a, b in zip(y_true.shape, shape, strict=False)
        if a is not None and b is not None
    ]
    same_rank = len(y_true.shape) == len(shape)
    if not same_rank or any(a != b for a, b in known):
        raise ValueError(
            f"`y_true` must have the shape {shape} of the predicted mean. "
            f"Received: y_true of shape {tuple(y_true.shape)}"
        )
    return ops.cast(y_true, mean.dtype)


def split_moments(outputs: Any, alternative: str) -> tuple[Any, Any]:
    """Returns the means and the standard deviations on the last axis.

    The error message suggests `alternative` for a network that predicts the
    mean alone.
    """
    shape = tuple(outputs.shape)
    if len(shape) < 2 or (shape[-1] is not None and shape[-1] % 2):
        raise ValueError(
            "`y_pred` must hold means, then as many standard deviations, on "
            "its last axis. If the network predicts the mean alone, write "
            f"{alternative}. Received: y_pred of shape {shape}"
        )
    return ops.split(outputs, 2, axis=-1)
