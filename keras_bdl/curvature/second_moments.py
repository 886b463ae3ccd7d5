"""Mean squares of per-example gradients."""

import tensorflow as tf

from keras_bdl.curvature.captured_pass import pure_pass


# What is run here is ordinary Python.
@tf.autograph.experimental.do_not_convert
def second_moments(
    model,
    x,
    y,
    sample_weight=None,
    *,
    training: bool = True,
    loss=None,
    fallback: bool = False,
):
    """Returns the mean gradient and the mean squared gradient of a batch.

    Both at the price of about one ordinary backward pass: nothing is run
    example by example. With g_i the gradient of the loss of example i of n,
    its weight omega_i a factor,

        gradients = (1/n) sum_i omega_i g_i + d(penalties)/dw             (1)
        squares = (1/n) sum_i omega_i g_i^2                               (2)

    where g_i is summed over all positions, time steps and calls of a layer
    before it is squared, and where penalties (regularizers and other
    `model.losses`) are in (1) and not in (2). BatchNorm in training joins
    the examples: g_i is then the part of the gradient that goes through the
    weights as example i uses them. The model is not changed, nor are its
    statistics and seeds. Optimizers call `keras_bdl.curvature.step`.

    Args:
        model: A built Keras model, compiled unless `loss` is given. The loss
            is to be the mean over the batch, as Keras has it by default.
        x: A batch of inputs.
        y: The targets.
        sample_weight: As Keras has it. One number an example is omega_i; any
            other, such as a weight for each position or output, is a part of
            the loss of an example. Defaults to `None`.
        training: Whether layers work as in training. Defaults to `True`.
        loss: As `compile` takes it, instead of the model's own. Defaults to
            `None`.
        fallback: Whether a layer without a rule is differentiated example by
            example, vectorised. Defaults to `False`, where it is an error.

    Returns:
        Two lists of tensors, `gradients` and `squares`, in the order of
        `model.trainable_variables`.

    Example:

    ```python
    gradients, squares = bdl.curvature.second_moments(model, x, y)
    ```

    Reference:
        - Osawa et al., [Practical Deep Learning with Bayesian Principles](
          https://arxiv.org/abs/1906.02506), section 3, whose squares of a
          convolution are taken position by position and are others
    """
    batch = model, x, y, sample_weight
    return pure_pass(*batch, training, loss, fallback).gradients_and_squares()
