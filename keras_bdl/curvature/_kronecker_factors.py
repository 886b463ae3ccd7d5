"""Kronecker factors of the curvature of a batch."""

import keras
import tensorflow as tf

from keras_bdl._aliases import ArrayLike
from keras_bdl._aliases import Loss
from keras_bdl._data._dataset_size import EXAMPLES
from keras_bdl.curvature._captured_pass import pure_pass
from keras_bdl.curvature._layer_factors import KroneckerFactors


# Autograph would rewrite this ordinary Python.
@tf.autograph.experimental.do_not_convert
def kronecker_factors(
    model: keras.Model,
    x: ArrayLike,
    y: ArrayLike,
    *,
    sample_weight: ArrayLike | None = None,
    training: bool = True,
    loss: Loss | None = None,
    fallback: bool | str = "auto",
    observations: str = EXAMPLES,
) -> list[KroneckerFactors]:
    """Returns the Kronecker factors of the weights that are matrices.

    Use this function for a curvature with correlations within a layer. The
    matrices are the weights of `Dense`, of convolutions without groups, and of
    `EinsumDense` whose kernel is a matrix, as in `MultiHeadAttention`. The
    factors approximate the empirical Fisher information, whose diagonal is the
    mean squares of `second_moments`. If you draw the targets `y` from the
    predictions of the model, the factors approximate the Fisher information.

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
        observations: `"examples"` or `"positions"`, see `second_moments`.
            Defaults to `"examples"`.

    Returns:
        A list of `KroneckerFactors`, one for each matrix. Their `variables`
        are the kernel and the bias of a layer. Other weights have no factors;
        `second_moments` covers them.

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
    run = pure_pass(
        model,
        (x, y, sample_weight),
        training=training,
        loss=loss,
        fallback=fallback,
        observations=observations,
    )
    _, cotangents = run.gradients_and_cotangents()
    _, factors = run.squares_and_factors(cotangents, run.mean_omega())
    return factors
