"""The Kronecker factors of the curvature of a matrix."""

import dataclasses
from typing import Any

import keras
import tensorflow as tf
from keras import ops

from keras_bdl.curvature._reductions import joined_positions


@dataclasses.dataclass
class KroneckerFactors:
    """A factored approximation of the curvature of one layer.

    The layer multiplies its inputs a by a matrix, at P positions of each
    example, such as the positions of a convolution. With z the product, l_i the
    loss of example i of n, and omega_i the weight of the example (1 without
    `sample_weight`),

        A = sum_i omega_i sum_p a_ip a_ip^T / sum_i omega_i               (1)
        S = 1/(n P) sum_i omega_i sum_p (dl_i/dz_ip) (dl_i/dz_ip)^T       (2)

    The Kronecker product A (x) S approximates the mean of g_i g_i^T over the
    examples. Here g_i is the gradient of l_i with respect to the matrix
    `(in, out)`, flattened row by row. If each position of an example is an
    observation, (2) has the L_i and the v of `step` in place of l_i and n.

    A counts all positions. A position that a mask leaves out adds nothing to S.

    Attributes:
        kernel: The kernel. Its axes are those of `in`, then those of `out`,
            such as (height, width, channels) and (filters).
        bias: The bias if the matrix has a last row for the bias, where a = 1;
            otherwise `None`.
        inputs: A, of shape `(in, in)`, where `in` includes the row of the bias.
        outputs: S, of shape `(out, out)`.
    """

    kernel: keras.Variable
    bias: keras.Variable | None
    inputs: Any
    outputs: Any

    @property
    def variables(self) -> list:
        """The kernel, and the bias if the matrix has a row for the bias."""
        return [v for v in (self.kernel, self.bias) if v is not None]


def kronecker_factors_of(
    matrix: Any,
    rows: list,
    *,
    all_examples: tf.Tensor,
    all_observations: tf.Tensor,
    omega: tf.Tensor | None = None,
    mean_omega: tf.Tensor | None = None,
) -> KroneckerFactors:
    """Returns this replica's share of the Kronecker factors of one layer.

    Args:
        matrix: The `Matrix` of the layer.
        rows: Pairs of inputs `(n, positions, in)` and cotangents
            `(n, positions, out)` of the mean loss, one pair for each call.
        all_examples: n times the number R of replicas, a float tensor.
        all_observations: R times the number v of observations, which is n
            unless the positions of an example count one by one.
        omega: The weights of the examples. Defaults to `None`: ones.
        mean_omega: The mean of `omega` over all replicas. Defaults to `None`.
    """
    if not rows:  # the loss does not depend on the layer
        inputs, outputs = (
            tf.zeros((size, size), matrix.kernel.dtype) for size in matrix.shape
        )
        return KroneckerFactors(matrix.kernel, matrix.bias, inputs, outputs)
    a, dz = joined_positions(rows)
    if matrix.bias is not None:
        a = ops.concatenate([a, ops.ones_like(a[..., :1])], axis=-1)
    positions = ops.cast(ops.shape(dz)[1], dz.dtype)
    all_examples = ops.cast(all_examples, dz.dtype)
    all_observations = ops.cast(all_observations, dz.dtype)
    if omega is None:
        inputs = gram(a) / all_examples  # (1)
        outputs = gram(dz) * all_observations / positions  # (2)
        return KroneckerFactors(matrix.kernel, matrix.bias, inputs, outputs)
    root = ops.sqrt(ops.cast(omega, dz.dtype))[:, None, None]
    inputs = tf.math.divide_no_nan(
        gram(a * root), all_examples * ops.cast(mean_omega, dz.dtype)
    )  # (1)
    # The square of a cotangent contains omega_i^2, but (2) needs omega_i.
    dz = tf.math.divide_no_nan(dz, root)
    outputs = gram(dz) * all_observations / positions  # (2)
    return KroneckerFactors(matrix.kernel, matrix.bias, inputs, outputs)


def gram(rows: tf.Tensor) -> tf.Tensor:
    """Returns the sum over examples and positions of r r^T.

    Args:
        rows: A tensor `(examples, positions, features)`.
    """
    rows = ops.reshape(rows, (-1, rows.shape[-1]))
    return tf.matmul(rows, rows, transpose_a=True)
