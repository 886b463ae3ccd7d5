"""Rules for convolutions: ordinary, transposed, depthwise and separable."""

import itertools
import math
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Sequence
from typing import Any

import keras
import tensorflow as tf
from keras import ops

from keras_bdl.curvature._rule import ExampleSums
from keras_bdl.curvature._rule import Rule
from keras_bdl.curvature._rule import WeightMatrix
from keras_bdl.curvature._rule import in_full_precision
from keras_bdl.curvature._rule import register_rule
from keras_bdl.curvature._rule import summed_over_positions
from keras_bdl.curvature._rules._dense import BUDGET
from keras_bdl.curvature._rules._dense import LIKELY
from keras_bdl.curvature._rules._dense import MatrixRule
from keras_bdl.curvature._rules._dense import outer_moments
from keras_bdl.curvature._rules._dense import outer_products
from keras_bdl.curvature._rules._dense import positions_of

# To join a few channels for each position of a window takes two to three times
# as long as a convolution that copies them. With more channels or a larger
# window, the products of the convolution take longer.
_FEW_CHANNELS = 4
_SMALL_WINDOW = 100


@register_rule(keras.layers.Conv1D, keras.layers.Conv2D, keras.layers.Conv3D)
class ConvRule(MatrixRule):
    """Rule for `Conv1D`, `Conv2D`, `Conv3D`: a block per window position."""

    stacks_rows = True

    def constants(self, layer: Any) -> tuple:
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

    def groups(self, layer: Any) -> int:
        """Returns the number of groups: a block has a matrix for each group."""
        return layer.groups

    def blocks(
        self, layer: Any, inputs: Any, cotangents: Any
    ) -> Iterable[tuple[Any, Any]]:
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

    def places(
        self, layer: Any, inputs: Any, cotangents: Any
    ) -> Iterable[tuple[Any, Any]]:
        """Yields the inputs at each position of the window, and the same dz."""
        x, dz = self._examples(layer, inputs, cotangents)
        yield from self._views(layer, x, dz, layer.kernel_size)

    def rows(self, layer: Any, inputs: Any, cotangents: Any) -> tuple[Any, Any]:
        """Returns the inputs at all positions of the window, joined, and dz."""
        x, dz = self._examples(layer, inputs, cotangents)
        channels = x.shape[-1]
        size = math.prod(layer.kernel_size) * channels
        if layer.rank != 2 or channels > _FEW_CHANNELS or size > _SMALL_WINDOW:
            return super().rows(layer, inputs, cotangents)
        return positions_of(_patches(layer, x, size)), positions_of(dz)

    def kernel_of_blocks(self, layer: Any, blocks: list) -> Any:
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

    def bias_per_example(self, layer: Any, cotangents: Any) -> Any:
        """Returns the sums over positions."""
        axis = -1 if layer.data_format == "channels_last" else 1
        return summed_over_positions(cotangents, axis)

    @staticmethod
    def _examples(layer: Any, inputs: Any, cotangents: Any) -> list:
        x = channels_last(in_full_precision(inputs), layer.data_format)
        dz = channels_last(cotangents, layer.data_format)
        return [_groups_as_examples(t, layer.groups) for t in (x, dz)]

    @staticmethod
    def _views(
        layer: Any, x: Any, dz: Any, kernel_size: tuple
    ) -> Iterator[tuple[Any, Any]]:
        windows = Windows(layer, x, ops.shape(dz)[1:-1], kernel_size)
        dz = positions_of(dz)
        for view in windows:
            yield positions_of(view), dz


def _patches(layer: Any, x: Any, size: int) -> Any:
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


def channels_last(tensor: Any, data_format: str) -> Any:
    """Returns a tensor with the channels in the last axis."""
    if data_format == "channels_last":
        return tensor
    return ops.moveaxis(tensor, 1, -1)


def _groups_as_examples(tensor: Any, groups: int) -> Any:
    """Returns each group of channels as an example of its own."""
    if groups == 1:
        return tensor
    shape, rank = ops.shape(tensor), len(tensor.shape)
    split = ops.reshape(tensor, (*shape[:-1], groups, shape[-1] // groups))
    moved = ops.moveaxis(split, rank - 1, 1)
    return ops.reshape(moved, (-1, *shape[1:-1], shape[-1] // groups))


def _is_large(layer: Any, x: Any, dz: Any) -> bool:
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


def _rows_side_by_side(dz: Any, rows: int, dilation: int) -> Any:
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

    def groups(self, layer: Any) -> int:
        """Returns 1: these layers have no groups."""
        return 1

    def blocks(
        self, layer: Any, inputs: Any, cotangents: Any
    ) -> Iterable[tuple[Any, Any]]:
        """Yields dz and the inputs of the layer for each window position."""
        x = channels_last(in_full_precision(inputs), layer.data_format)
        dz = channels_last(cotangents, layer.data_format)
        windows = Windows(layer, dz, ops.shape(x)[1:-1])
        x = positions_of(x)
        for view in windows:
            yield positions_of(view), x

    def matrices(self, layer: Any) -> list[WeightMatrix]:
        """Returns `[]`: these kernels have no Kronecker factors here."""
        return []


@register_rule(keras.layers.DepthwiseConv1D, keras.layers.DepthwiseConv2D)
class DepthwiseConvRule(Rule):
    """Rule for `DepthwiseConv1D` and `DepthwiseConv2D`."""

    def weights(self, layer: Any) -> list:
        """Returns the kernel, and the bias if the layer has a bias."""
        return [layer.kernel] + ([] if layer.bias is None else [layer.bias])

    def per_example(self, layer: Any, inputs: Any, cotangents: Any) -> list:
        """Returns the gradients of each example."""
        x = channels_last(in_full_precision(inputs), layer.data_format)
        dz = channels_last(cotangents, layer.data_format)
        gradients = [depthwise_kernel_per_example(layer, x, dz)]
        if layer.bias is not None:
            gradients.append(summed_over_positions(dz))
        return gradients


def depthwise_kernel_per_example(layer: keras.Layer, x: Any, dz: Any) -> Any:
    """Returns the gradients `(examples, *kernel_size, channels, multiplier)`.

    x and dz are inputs and cotangents of a depthwise convolution, channels
    last.
    """
    windows = Windows(layer, x, ops.shape(dz)[1:-1])
    channels, multiplier = x.shape[-1], layer.depth_multiplier
    dz = positions_of(dz)
    dz = ops.reshape(dz, (*ops.shape(dz)[:2], channels, multiplier))
    places = [
        ops.sum(positions_of(view)[..., None] * dz, axis=1) for view in windows
    ]
    return ops.reshape(
        ops.stack(places, axis=1),
        (-1, *layer.kernel_size, channels, multiplier),
    )


@register_rule(keras.layers.SeparableConv1D, keras.layers.SeparableConv2D)
class SeparableConvRule(Rule):
    """Rule for `SeparableConv1D` and `SeparableConv2D`.

    The rule computes the values between the two convolutions again. Their
    cotangents follow from the cotangents of the outputs.
    """

    def weights(self, layer: Any) -> list:
        """Returns both kernels, and the bias if the layer has a bias."""
        kernels = [layer.depthwise_kernel, layer.pointwise_kernel]
        return kernels + ([] if layer.bias is None else [layer.bias])

    def per_example(self, layer: Any, inputs: Any, cotangents: Any) -> list:
        """Returns the gradients of each example."""
        depthwise, between, dz = self._stages(layer, inputs, cotangents)
        pointwise = outer_products(between, positions_of(dz))
        gradients = [
            depthwise,
            ops.reshape(pointwise, (-1, *layer.pointwise_kernel.shape)),
        ]
        if layer.bias is not None:
            gradients.append(summed_over_positions(dz))
        return gradients

    def moments(self, layer: Any, calls: list, example_weights: Any) -> list:
        """Returns the moments, by `outer_moments` for the pointwise kernel."""
        sums = ExampleSums(example_weights)
        stages = [self._stages(layer, *call) for call in calls]
        depthwise = sum(d for d, _, _ in stages)
        pointwise = outer_moments(
            [(between, positions_of(dz)) for _, between, dz in stages],
            groups=1,
            sums=sums,
        )
        shape = layer.pointwise_kernel.shape
        found = [
            sums.of(depthwise),
            tuple(ops.reshape(m, shape) for m in pointwise),
        ]
        if layer.bias is not None:
            bias = sum(summed_over_positions(dz) for _, _, dz in stages)
            found.append(sums.of(bias))
        return found

    def _stages(
        self, layer: Any, inputs: Any, cotangents: Any
    ) -> tuple[Any, Any, Any]:
        x = channels_last(in_full_precision(inputs), layer.data_format)
        dz = channels_last(cotangents, layer.data_format)
        between = ops.depthwise_conv(
            x,
            ops.cast(layer.depthwise_kernel, x.dtype),
            layer.strides,
            layer.padding,
            "channels_last",
            layer.dilation_rate,
        )
        kernel = ops.cast(layer.pointwise_kernel, dz.dtype)
        kernel = ops.reshape(kernel, kernel.shape[-2:])
        dbetween = ops.matmul(dz, ops.transpose(kernel))
        depthwise = depthwise_kernel_per_example(layer, x, dbetween)
        return depthwise, positions_of(between), dz


class Windows:
    """Iterates over window positions and yields the inputs at each position.

    x are inputs with channels last, and `out_sizes` the spatial sizes of the
    outputs. The other arguments are those of `layer`; `kernel_size` is the
    whole window by default.
    """

    def __init__(
        self,
        layer: Any,
        x: Any,
        out_sizes: Sequence,
        kernel_size: Sequence[int] | None = None,
    ):
        strides, dilation_rate = layer.strides, layer.dilation_rate
        kernel_size = kernel_size or layer.kernel_size
        self._out = out_sizes
        self._kernel_size = kernel_size
        self._strides = strides
        self._dilation = dilation_rate
        self._channels = x.shape[-1]
        axes = zip(
            ops.shape(x)[1:-1],
            out_sizes,
            kernel_size,
            strides,
            dilation_rate,
            strict=True,
        )
        paddings = [_paddings(*axis, layer.padding) for axis in axes]
        if any(_may_be_positive(n) for pair in paddings for n in pair):
            x = tf.pad(x, [(0, 0), *paddings, (0, 0)])
        self._x = x
        # One constant for all positions.
        self._size = tf.stack([-1, *out_sizes, -1])
        if any(s > 1 for s in strides):
            self._split_into_phases()

    def __iter__(self) -> Iterator[Any]:
        """Yields a tensor `(examples, *out_sizes, channels)` per position."""
        for place in itertools.product(*map(range, self._kernel_size)):
            offsets = [
                i * d for i, d in zip(place, self._dilation, strict=True)
            ]
            steps, phases = zip(
                *map(divmod, offsets, self._strides), strict=True
            )
            x = self._x[phases] if self._phased else self._x
            if all(
                step == 0 and isinstance(out, int) and size == out
                for step, size, out in zip(
                    steps, x.shape[1:-1], self._out, strict=True
                )
            ):
                yield x
                continue
            # One operation; indexing with brackets makes several.
            yield tf.slice(x, [0, *steps, 0], self._size)

    @property
    def _phased(self) -> bool:
        return any(s > 1 for s in self._strides)

    def _split_into_phases(self) -> None:
        """Sorts positions by their remainder after division by the stride.

        No slice then has a stride: TensorFlow is slow at strided slices.
        """
        shape, rank = ops.shape(self._x), len(self._strides)
        split = [shape[0]]
        for size, stride in zip(shape[1:-1], self._strides, strict=True):
            split += [size // stride, stride]
        phases = [2 + 2 * a for a in range(rank)]
        positions = [1 + 2 * a for a in range(rank)]
        self._x = ops.transpose(
            ops.reshape(self._x, (*split, self._channels)),
            [*phases, 0, *positions, 1 + 2 * rank],
        )


def _paddings(
    size: Any,
    out_size: Any,
    kernel_size: int,
    stride: int,
    dilation: int,
    padding: str,
) -> tuple[Any, Any]:
    """Returns the numbers of zeros before and after one axis."""
    reach = (kernel_size - 1) * dilation
    needed = (out_size - 1) * stride + reach + 1
    before = 0
    if padding == "causal":
        before = reach
    elif padding == "same":
        before = _at_least_zero(needed - size) // 2
    behind = _at_least_zero(needed - size - before)
    if stride > 1:  # so that all phases have the same length
        behind = behind + (-(size + before + behind)) % stride
    return before, behind


def _at_least_zero(number: Any) -> Any:
    return max(number, 0) if isinstance(number, int) else tf.maximum(number, 0)


def _may_be_positive(number: Any) -> bool:
    return not isinstance(number, int) or number > 0
