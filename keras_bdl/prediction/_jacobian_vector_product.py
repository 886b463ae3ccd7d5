"""The derivative of outputs in one direction of the weights."""

from collections.abc import Callable
from collections.abc import Sequence

import tensorflow as tf


def jacobian_vector_product(
    function: Callable[[], list[tf.Tensor]],
    weights: Sequence[tf.Tensor],
    direction: Sequence[tf.Tensor],
) -> tuple[list[tf.Tensor], list[tf.Tensor]]:
    """Returns the outputs f and their derivatives J d in the direction d.

    The gradient of v^T f is J^T v, which is linear in v. Its derivative with
    respect to v, in the direction d, is J d. The result does not need J^T v
    itself, so a graph does not compute it. `tf.autodiff.ForwardAccumulator`
    needs more products: it multiplies the derivative of the inputs, which is
    zero, by the weights of the first layer.

    Args:
        function: Computes the outputs, a flat list, from the tensors in
            `weights`.
        weights: The weights that are uncertain.
        direction: d, a tensor for each of `weights`.
    """
    zero = tf.UnconnectedGradients.ZERO
    with tf.GradientTape(watch_accessed_variables=False) as outer:
        with tf.GradientTape(watch_accessed_variables=False) as inner:
            inner.watch(weights)
            outputs = function()
        # Any v: its value has no effect.
        v = [tf.zeros_like(output) for output in outputs]
        outer.watch(v)
        gradients = inner.gradient(outputs, weights, v, zero)
        # The gradient of a lookup is sparse.
        gradients = [tf.convert_to_tensor(g) for g in gradients]
    return outputs, outer.gradient(gradients, v, direction, zero)
