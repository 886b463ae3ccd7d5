"""The rule for dense layers."""

import math

import keras
from keras import ops

from keras_bdl.curvature.reductions import in_full_precision
from keras_bdl.curvature.registry import register_rule
from keras_bdl.curvature.rule import summed_over_positions
from keras_bdl.curvature.rules.matrix import MatrixRule


@register_rule(keras.layers.Dense)
class DenseRule(MatrixRule):
    """The rule for `Dense`, whose positions are all axes but two."""

    def blocks(self, layer, inputs, cotangents):
        """Yields the only block."""
        yield positions_of(in_full_precision(inputs)), positions_of(cotangents)

    def kernel_of_blocks(self, layer, blocks):
        """Returns the only block."""
        return ops.squeeze(blocks[0], axis=-3)

    def bias_per_example(self, layer, cotangents):
        """Returns the sums over positions."""
        return summed_over_positions(cotangents)


def positions_of(tensor, leading=1, trailing=1):
    """Returns a tensor as `(examples, positions, features)`.

    Args:
        tensor: A tensor.
        leading: How many axes are those of examples. Defaults to `1`.
        trailing: How many axes are those of features. Defaults to `1`.
    """

    def sizes_of(shape):
        end = len(shape) - trailing
        parts = shape[:leading], shape[leading:end], shape[end:]
        return [None if None in p else math.prod(p) for p in parts]

    sizes = sizes_of(tuple(tensor.shape))
    if sizes.count(None) > 1:
        sizes = sizes_of(ops.shape(tensor))
    return ops.reshape(tensor, [-1 if s is None else s for s in sizes])
