"""The squared gradient of a group of examples."""

import keras
from keras import ops

from keras_bdl.objectives.hessian_diagonal import HessianDiagonal


@keras.saving.register_keras_serializable(package="keras_bdl")
class SquaredGradient(HessianDiagonal):
    """Takes the square of a mean gradient for the second derivative.

        h = S g^2                                                         (1)

    with g the gradient of the mean negative log-likelihood of S examples. At
    weights where gradients of the single examples g_i average out, (1) is on
    average the empirical Fisher information, the mean of g_i^2; elsewhere it
    has `(S - 1)` times the square of their mean on top of it.

    Reference:
        - Unlu and Aitchison, [Gradient Regularisation as Approximate
          Variational Inference](https://arxiv.org/abs/2011.10443), eq. 10
    """

    depends_on_group = True

    def __call__(self, forward, values):
        """Returns the outcome of a batch, and (1)."""
        outcome, gradients = forward.with_gradient(values)
        size = ops.cast(forward.examples, "float32")
        return outcome, [
            ops.cast(size, g.dtype) * ops.square(g)  # (1)
            for g in gradients
        ]
