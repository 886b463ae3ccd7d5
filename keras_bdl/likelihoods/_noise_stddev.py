"""The standard deviation of the noise: learned, or predicted per input."""

import math

import keras
from keras import ops

from keras_bdl._aliases import ArrayLike
from keras_bdl._arguments import check_number

# Without this bound, the likelihood is infinite at zero noise.
SMALLEST = 1e-3


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
    return ops.concatenate([mean, ops.softplus(raw) + SMALLEST], axis=-1)


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

    def __init__(self, initial_stddev: float = 1.0, **kwargs):
        super().__init__(**kwargs)
        check_number("initial_stddev", initial_stddev, above=SMALLEST)
        self.initial_stddev = initial_stddev

    def build(self, input_shape):
        """Creates `raw_stddev`, one number per target."""
        above = self.initial_stddev - SMALLEST
        # A form of the inverse of softplus that does not overflow.
        raw = above + math.log(-math.expm1(-above))
        self.raw_stddev = self.add_weight(
            shape=(input_shape[-1],),
            initializer=keras.initializers.Constant(raw),
            name="raw_stddev",
        )

    def call(self, inputs):
        """Returns the means, then the standard deviations."""
        stddev = ops.softplus(self.raw_stddev) + SMALLEST  # (1)
        stddev = ops.broadcast_to(stddev, ops.shape(inputs))
        return ops.concatenate([inputs, stddev], axis=-1)

    def compute_output_shape(self, input_shape):
        """Doubles the last dimension."""
        return (*input_shape[:-1], 2 * input_shape[-1])

    def get_config(self):
        """Returns all arguments."""
        return {**super().get_config(), "initial_stddev": self.initial_stddev}
