"""The gradient of each example of a batch."""

import tensorflow as tf

from keras_bdl.curvature.captured_pass import pure_pass


# What is run here is ordinary Python.
@tf.autograph.experimental.do_not_convert
def per_example_gradients(
    model,
    x,
    y,
    sample_weight=None,
    *,
    training: bool = True,
    loss=None,
    fallback: bool = False,
):
    """Returns the gradients of each example's loss.

    They need as much memory as the batch has examples times the model has
    weights; where their squares suffice, see `second_moments`.

    Args:
        model: As of `second_moments`.
        x: A batch of inputs.
        y: The targets.
        sample_weight: As of `second_moments`; here a factor of the loss of
            each example. Defaults to `None`.
        training: As of `second_moments`. Defaults to `True`.
        loss: As of `second_moments`. Defaults to `None`.
        fallback: As of `second_moments`. Defaults to `False`.

    Returns:
        A list of tensors in the order of `model.trainable_variables`, with
        the examples for their first axis. The mean over it is the gradient
        of the loss without penalties.

    Example:

    ```python
    rows = bdl.curvature.per_example_gradients(model, x, y)
    ```
    """
    batch = model, x, y, sample_weight
    return pure_pass(*batch, training, loss, fallback).per_example()
