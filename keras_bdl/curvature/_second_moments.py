"""Mean squares of per-example gradients."""

import keras
import tensorflow as tf

from keras_bdl._aliases import ArrayLike
from keras_bdl._aliases import Loss
from keras_bdl._data._dataset_size import EXAMPLES
from keras_bdl.curvature._captured_pass import pure_pass


# Autograph would rewrite this ordinary Python.
@tf.autograph.experimental.do_not_convert
def second_moments(
    model: keras.Model,
    x: ArrayLike,
    y: ArrayLike,
    *,
    sample_weight: ArrayLike | None = None,
    training: bool = True,
    loss: Loss | None = None,
    fallback: bool | str = "auto",
    observations: str = EXAMPLES,
) -> tuple[list[tf.Tensor], list[tf.Tensor]]:
    """Returns the mean gradient and the mean squared per-example gradient.

    Use this function to measure gradient noise or a diagonal curvature. Both
    results cost about one ordinary backward pass. With g_i the gradient of the
    loss of example i of n and omega_i its weight,

        gradients = (1/n) sum_i omega_i g_i + d(penalties)/dw             (1)
        squares = (1/n) sum_i omega_i g_i^2                               (2)

    where g_i is summed over all positions, time steps and calls of a layer
    before it is squared. Penalties (regularizers and other `model.losses`) are
    in (1) and not in (2). In training, BatchNorm makes the examples depend on
    each other. g_i is then the part of the loss gradient that passes through
    the layer outputs for example i. The weights, BatchNorm statistics and seeds
    of the model do not change. Optimizers call `keras_bdl.extend.step`
    instead.

    Args:
        model: A built Keras model, compiled unless `loss` is given. The loss
            must be the mean over the batch, the default of Keras.
        x: A batch of inputs.
        y: The targets.
        sample_weight: Weights, as in Keras. One weight per example is omega_i.
            Weights of any other shape, such as one per position or output,
            only multiply terms inside the loss of an example; omega_i is then
            1. Defaults to `None`.
        training: Whether the model runs with `training=True`. Defaults to
            `True`.
        loss: Loss as in `compile`, in place of the loss of the model. Defaults
            to `None`.
        fallback: What to do with layers that have no rule. `True`
            differentiates them separately for each example, which is slow and
            takes memory. `"auto"` does so for small layers, with a warning, and
            raises an error for large ones. `False` raises an error. Defaults to
            `"auto"`.
        observations: `"examples"` for (2). With `"positions"`, each value of
            the loss is an observation, such as each token: with v values in the
            batch and L_i the sum of those of example i, the squares are
            `(1/v) sum_i omega_i (dL_i/dw)^2`. Defaults to `"examples"`.

    Returns:
        Two lists of tensors, `gradients` and `squares`, in the order of
        `model.trainable_variables`.

    Example:

    ```python
    gradients, squares = bdl.curvature.second_moments(model, x, y)
    ```

    Reference:
        - Osawa et al., [Practical Deep Learning with Bayesian Principles](
          https://arxiv.org/abs/1906.02506), section 3. The paper squares
          gradients of a convolution position by position, which gives other
          values.
    """
    run = pure_pass(
        model,
        (x, y, sample_weight),
        training=training,
        loss=loss,
        fallback=fallback,
        observations=observations,
    )
    return run.gradients_and_squares()
