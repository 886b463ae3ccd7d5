"""The rule for convolutions."""

import keras
from keras import ops

from keras_bdl.curvature.reductions import in_full_precision
from keras_bdl.curvature.registry import register_rule
from keras_bdl.curvature.rule import summed_over_positions
from keras_bdl.curvature.rules.dense import positions_of
from keras_bdl.curvature.rules.matrix import MatrixRule
from keras_bdl.curvature.rules.windows import Windows


@register_rule(keras.layers.Conv1D, keras.layers.Conv2D, keras.layers.Conv3D)
class ConvRule(MatrixRule):
    """The rule for `Conv1D`, `Conv2D` and `Conv3D`, a block for each place."""

    def groups(self, layer):
        """Returns the number of groups."""
        return layer.groups

    def blocks(self, layer, inputs, cotangents):
        """Yields what each place of the window sees."""
        x = channels_last(in_full_precision(inputs), layer.data_format)
        dz = channels_last(cotangents, layer.data_format)
        x, dz = (_groups_as_examples(t, layer.groups) for t in (x, dz))
        windows = Windows(
            x,
            ops.shape(dz)[1:-1],
            layer.kernel_size,
            layer.strides,
            layer.dilation_rate,
            layer.padding,
        )
        dz = positions_of(dz)
        for view in windows:
            yield positions_of(view), dz

    def kernel_of_blocks(self, layer, blocks):
        """Returns the places first, then inputs, then groups and outputs."""
        stacked = ops.stack(blocks, axis=-4)
        rank = len(stacked.shape)
        order = [*range(rank - 3), rank - 2, rank - 3, rank - 1]
        kernels = ops.transpose(stacked, order)
        return ops.reshape(
            kernels, (*ops.shape(kernels)[: rank - 4], *layer.kernel.shape)
        )

    def bias_per_example(self, layer, cotangents):
        """Returns the sums over positions."""
        axis = -1 if layer.data_format == "channels_last" else 1
        return summed_over_positions(cotangents, axis)


def channels_last(tensor, data_format):
    """Returns a tensor with the channels for its last axis.

    Args:
        tensor: Inputs or outputs of a layer.
        data_format: That of the layer.
    """
    if data_format == "channels_last":
        return tensor
    return ops.moveaxis(tensor, 1, -1)


def _groups_as_examples(tensor, groups):
    """Returns each group of channels as an example of its own."""
    if groups == 1:
        return tensor
    shape, rank = ops.shape(tensor), len(tensor.shape)
    split = ops.reshape(tensor, (*shape[:-1], groups, shape[-1] // groups))
    moved = ops.moveaxis(split, rank - 1, 1)
    return ops.reshape(moved, (-1, *shape[1:-1], shape[-1] // groups))
