"""The activation of a network that predicts the noise of its targets."""

import keras
from keras import ops

from keras_bdl.aliases import ArrayLike

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
