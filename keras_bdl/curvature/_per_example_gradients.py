"""The gradient of each example of a batch."""

import keras
import tensorflow as tf

from keras_bdl._aliases import ArrayLike
from keras_bdl._aliases import Loss
from keras_bdl.curvature._captured_pass import pure_pass


# Autograph would rewrite this ordinary Python.
@tf.autograph.experimental.do_not_convert
def per_example_gradients(
    model: keras.Model,
    x: ArrayLike,
    y: ArrayLike,
    *,
    sample_weight: ArrayLike | None = None,
    training: bool = True,
    loss: Loss | None = None,
    fallback: bool | str = "auto",
) -> list[tf.Tensor]:
    """Returns the gradient of each example's loss.

    Use this function for small models and batches: the result needs memory for
    the number of examples times the number of weights. If mean squares are
    enough, use `second_moments`.

    Args:
        model: A built Keras model, compiled unless `loss` is given. The loss
            must be the mean over the batch, the default of Keras.
        x: A batch of inputs.
        y: The targets.
        sample_weight: Weights, as in Keras: factors of the loss of each
            example. Defaults to `None`.
        training: Whether the model runs with `training=True`. Defaults to
            `True`.
        loss: Loss as in `compile`, in place of the loss of the model. Defaults
            to `None`.
        fallback: What to do with layers that have no rule. `True`
            differentiates them separately for each example, which is slow and
            takes memory. `"auto"` does so for small layers, with a warning, and
            raises an error for large ones. `False` raises an error. Defaults to
            `"auto"`.

    Returns:
        A list of tensors in the order of `model.trainable_variables`. The first
        axis of a tensor is the examples. The mean over this axis is the
        gradient of the loss without penalties.

    Example:

    ```python
    rows = bdl.curvature.per_example_gradients(model, x, y)
    ```
    """
    run = pure_pass(
        model,
        (x, y, sample_weight),
        training=training,
        loss=loss,
        fallback=fallback,
    )
    return run.per_example()
