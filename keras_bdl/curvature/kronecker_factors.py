"""Kronecker factors of the curvature of a batch."""

import tensorflow as tf

from keras_bdl.curvature.captured_pass import pure_pass


# What is run here is ordinary Python.
@tf.autograph.experimental.do_not_convert
def kronecker_factors(
    model,
    x,
    y,
    sample_weight=None,
    *,
    training: bool = True,
    loss=None,
    fallback: bool = False,
):
    """Returns the Kronecker factors of the weights that are matrices.

    These are the weights of `Dense`, of convolutions without groups, and of
    `EinsumDense` where its kernel is a matrix, as in `MultiHeadAttention`.
    The approximated curvature is that of `second_moments`: the empirical
    Fisher. With targets drawn from the model's own prediction for `y`, it is
    the Fisher.

    Args:
        model: As of `second_moments`.
        x: A batch of inputs.
        y: The targets.
        sample_weight: As of `second_moments`. Defaults to `None`.
        training: As of `second_moments`. Defaults to `True`.
        loss: As of `second_moments`. Defaults to `None`.
        fallback: As of `second_moments`. Defaults to `False`.

    Returns:
        A list of `KroneckerFactors`, one for each such layer. Their
        `variables` say which weights they are of; other weights have
        `second_moments` only.

    Example:

    ```python
    for factors in bdl.curvature.kronecker_factors(model, x, y):
        print(factors.kernel.path, factors.inputs.shape, factors.outputs.shape)
    ```

    Reference:
        - Martens and Grosse, [Optimizing Neural Networks with
          Kronecker-factored Approximate Curvature](
          https://arxiv.org/abs/1503.05671)
        - Grosse and Martens, [A Kronecker-factored approximate Fisher matrix
          for convolution layers](https://arxiv.org/abs/1602.01407)
    """
    batch = model, x, y, sample_weight
    run = pure_pass(*batch, training, loss, fallback)
    _, factors = run.factors_and_squares(run.mean_omega())
    return factors
