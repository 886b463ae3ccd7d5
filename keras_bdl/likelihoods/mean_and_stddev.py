"""The activation of a network that predicts its own noise."""

import keras
from keras import ops

# The likelihood has no bound where the noise goes to zero.
SMALLEST = 1e-3


@keras.saving.register_keras_serializable(package="keras_bdl")
def mean_and_stddev(x):
    """Makes means and standard deviations out of any numbers.

    The first half of the last axis passes as it is; the second half becomes
    `softplus(x) + 0.001`.

    Args:
        x: Tensor with an even number of entries on the last axis.

    Returns:
        A tensor of the same shape, what `keras_bdl.likelihoods.Gaussian` and
        the regression metrics take for the output of a model.

    Example:

    ```python
    keras.layers.Dense(2, activation=keras_bdl.likelihoods.mean_and_stddev)
    ```
    """
    if x.shape[-1] % 2:
        raise ValueError(
            "`x` must have an even number of entries on its last axis, means "
            "and then as many standard deviations. "
            f"Received: x of shape {tuple(x.shape)}"
        )
    mean, raw = ops.split(x, 2, axis=-1)
    return ops.concatenate([mean, ops.softplus(raw) + SMALLEST], axis=-1)
