"""A block of the covariance of a Gaussian, applied to gradients."""

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from keras_bdl.posteriors._gaussian import VARIANCE


@dataclasses.dataclass
class VariableBlock:
    """A block of the covariance of a Gaussian over weights.

    Attributes:
        variables: The kernel and the bias, or the only variable.
        inputs: Q_A, or `None` for independent weights.
        outputs: Q_S, or `None`.
        variance: The variances.
    """

    variables: list
    inputs: tf.Tensor | None
    outputs: tf.Tensor | None
    variance: tf.Tensor

    def whitened(self, gradients: dict[int, Any]) -> Any:
        """Returns the gradients times a root of the block.

        Args:
            gradients: For each variable by `id`, `(examples, *shape)`.

        Returns:
            A tensor `(examples, weights)`.
        """
        found = [gradients[id(v)] for v in self.variables]
        stddev = tf.cast(tf.sqrt(self.variance), found[0].dtype)
        if self.inputs is None:
            rows = found[0] * stddev
        else:
            outs = stddev.shape[-1]
            rows = [
                tf.reshape(g, [-1, math.prod(g.shape[1:]) // outs, outs])
                for g in found
            ]
            rows = tf.concat(rows, axis=1)
            rows = _turned(rows, self.outputs)
            rows = tf.einsum("bio,ij->bjo", rows, _as(self.inputs, rows))
            rows *= stddev
        return tf.reshape(rows, [-1, math.prod(rows.shape[1:])])

    def root_of_product(self, a: Any, dz: Any) -> Any:
        """Returns a root of the covariance of the outputs of a product.

        With `z = a W`, a row of the root is

            R_k = (Q_S^T dz)_k sqrt(v_k),  v_k = sum_j (Q_A^T a)_j^2 V_jk (1)

        Args:
            a: The inputs, `(examples, in)`, with ones for the bias.
            dz: The gradients of the outputs, `(n, examples, out)`.
        """
        variance = _as(self.variance, a)
        variance = tf.reshape(variance, [-1, dz.shape[-1]])
        if self.inputs is not None:
            a = tf.matmul(a, _as(self.inputs, a))
            dz = _turned(dz, self.outputs)
        v = tf.matmul(tf.square(a), variance)
        return tf.transpose(dz * tf.sqrt(v), [1, 0, 2])  # (1)


def _as(tensor, other):
    return tf.cast(tensor, other.dtype)


def _turned(rows, basis):
    return tf.einsum("...o,ok->...k", rows, _as(basis, rows))


def variable_blocks(
    trained: list, layout: Sequence[tuple], arrays: Sequence[tf.Tensor]
) -> list[VariableBlock]:
    """Returns the blocks of a covariance in terms of variables.

    Args:
        trained: The variables that the layout counts.
        layout: The layout of a `CovarianceBlocks`.
        arrays: Its arrays, as tensors.
    """
    found = []
    arrays = list(arrays)
    for kind, *indices in layout:
        variables = [trained[i] for i in indices if i is not None]
        if kind == VARIANCE:
            found.append(VariableBlock(variables, None, None, arrays.pop(0)))
        else:
            found.append(VariableBlock(variables, *arrays[:3]))
            del arrays[:3]
    return found
