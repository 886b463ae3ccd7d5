"""Rules for convolutions and transposed convolutions."""

import math

import keras
from keras import ops

from keras_bdl.curvature._reductions import BUDGET
from keras_bdl.curvature._reductions import LIKELY
from keras_bdl.curvature._reductions import in_full_precision
from keras_bdl.curvature._rule import register_rule
from keras_bdl.curvature._rule import summed_over_positions
from keras_bdl.curvature._rules._dense import MatrixRule
from keras_bdl.curvature._rules._dense import positions_of
from keras_bdl.curvature._rules._windows import Windows

# To join a few channels for each position of a window takes two to three times
# as long as a convolution that copies them. With more channels or a larger
# window, the products of the convolution take longer.
_FEW_CHANNELS = 4
_SMALL_WINDOW = 100


@register_rule(keras.layers.Conv1D, keras.layers.Conv2D, keras.layers.Conv3D)
class ConvRule(MatrixRule):
    """Rule for `Conv1D`, `Conv2D`, `Conv3D`: a block per window position."""

    stacks_rows = True

    def constants(self, layer):
        """Returns the arguments of the layer that the blocks depend on."""
        return (
            layer.kernel.shape,
            layer.bias is None,
            layer.strides,
            layer.padding,
            layer.dilation_rate,
            layer.data_format,
            self.groups(layer),
        )

    def groups(self, layer):
        """Returns the number of groups: a block has a matrix for each group."""
        return layer.groups

    def blocks(self, layer, inputs, cotangents):
        """Yields the inputs at each position of the window.

        If `_is_large`, the method yields one block for each column of the
        window, which is faster. The cotangents of all rows of the column are
        then side by side.
        """
        x, dz = self._examples(layer, inputs, cotangents)
        size, rows = layer.kernel_size, 1
        if self.stacks_rows and _is_large(layer, x, dz):
            rows, size = size[0], (1, *size[1:])
            dz = _rows_side_by_side(dz, rows, layer.dilation_rate[0])
        yield from self._views(layer, x, dz, size)

    def places(self, layer, inputs, cotangents):
        """Yields the inputs at each position of the window, and the same dz."""
        x, dz = self._examples(layer, inputs, cotangents)
        yield from self._views(layer, x, dz, layer.kernel_size)

    def rows(self, layer, inputs, cotangents):
        """Returns the inputs at all positions of the window, joined, and dz."""
        x, dz = self._examples(layer, inputs, cotangents)
        channels = x.shape[-1]
        size = math.prod(layer.kernel_size) * channels
        if layer.rank != 2 or channels > _FEW_CHANNELS or size > _SMALL_WINDOW:
            return super().rows(layer, inputs, cotangents)
        return positions_of(_patches(layer, x, size)), positions_of(dz)

    def kernel_of_blocks(self, layer, blocks):
        """Returns the joined blocks with the axis order of the kernel."""
        stacked = ops.stack(blocks, axis=-4)
        lead, shape = ops.shape(stacked)[:-4], stacked.shape[-4:]
        outputs = layer.kernel.shape[-1] // shape[1]
        split = (*lead, *shape[:3], shape[3] // outputs, outputs)
        kernels = ops.reshape(stacked, split)
        # The axes are columns, groups, inputs, rows, outputs.
        order = [len(lead) + axis for axis in (3, 0, 2, 1, 4)]
        kernels = ops.transpose(kernels, [*range(len(lead)), *order])
        return ops.reshape(kernels, (*lead, *layer.kernel.shape))

    def bias_per_example(self, layer, cotangents):
        """Returns the sums over positions."""
        axis = -1 if layer.data_format == "channels_last" else 1
        return summed_over_positions(cotangents, axis)

    @staticmethod
    def _examples(layer, inputs, cotangents):
        x = channels_last(in_full_precision(inputs), layer.data_format)
        dz = channels_last(cotangents, layer.data_format)
        return [_groups_as_examples(t, layer.groups) for t in (x, dz)]

    @staticmethod
    def _views(layer, x, dz, kernel_size):
        sizes = ops.shape(dz)[1:-1]
        windows = Windows(
            x,
            sizes,
            kernel_size=kernel_size,
            strides=layer.strides,
            dilation_rate=layer.dilation_rate,
            padding=layer.padding,
        )
        dz = positions_of(dz)
        for view in windows:
            yield positions_of(view), dz


def _patches(layer, x, size):
    """Returns the window at each output, with all its inputs as channels."""
    # Each filter copies one input of the window.
    copies = ops.reshape(
        ops.eye(size, dtype=x.dtype), (*layer.kernel_size, -1, size)
    )
    return ops.conv(
        x,
        copies,
        strides=layer.strides,
        padding=layer.padding,
        data_format="channels_last",
        dilation_rate=layer.dilation_rate,
    )


def channels_last(tensor, data_format):
    """Returns a tensor with the channels in the last axis.

    Args:
        tensor: Inputs or outputs of a layer.
        data_format: The data format of the layer.
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


def _is_large(layer, x, dz):
    """Returns whether blocks of columns are faster than blocks of positions.

    Blocks of window columns need fewer copies of the inputs. Measurements
    showed a gain for images larger than the processor caches, except for images
    with few channels.
    """
    sizes = (*x.shape[1:], *dz.shape[1:])
    if layer.rank != 2 or None in sizes or any(s > 1 for s in layer.strides):
        return False
    numbers = (dz.shape[0] or LIKELY) * math.prod(dz.shape[1:])
    return (
        math.prod(x.shape[1:-1]) >= 1024
        and x.shape[-1] >= 8
        and 1 < layer.kernel_size[0] <= BUDGET // numbers
    )


def _rows_side_by_side(dz, rows, dilation):
    """Returns the cotangents of all rows of a window as channels."""
    reach = (rows - 1) * dilation
    paddings = [(i * dilation, reach - i * dilation) for i in range(rows)]
    shifted = [ops.pad(dz, [(0, 0), p, (0, 0), (0, 0)]) for p in paddings]
    return ops.concatenate(shifted, axis=-1)


@register_rule(
    keras.layers.Conv1DTranspose,
    keras.layers.Conv2DTranspose,
    keras.layers.Conv3DTranspose,
)
class ConvTransposeRule(ConvRule):
    """Rule for `Conv1DTranspose`, `Conv2DTranspose` and `Conv3DTranspose`.

    The layer is the gradient of a convolution with respect to its inputs, so
    the window moves over the outputs of the layer.
    """

    def groups(self, layer):
        """Returns 1: these layers have no groups."""
        return 1

    def blocks(self, layer, inputs, cotangents):
        """Yields dz and the inputs of the layer for each window position."""
        x = channels_last(in_full_precision(inputs), layer.data_format)
        dz = channels_last(cotangents, layer.data_format)
        windows = Windows(
            dz,
            ops.shape(x)[1:-1],
            kernel_size=layer.kernel_size,
            strides=layer.strides,
            dilation_rate=layer.dilation_rate,
            padding=layer.padding,
        )
        x = positions_of(x)
        for view in windows:
            yield positions_of(view), x

    def matrices(self, layer):
        """Returns `[]`: these kernels have no Kronecker factors here."""
        return []
