"""Inputs of a convolution at each position of its window."""

import itertools

import tensorflow as tf
from keras import ops


class Windows:
    """Iterates over window positions and yields the inputs at each position.

    Args:
        x: Inputs, channels last.
        out_sizes: Sizes of the outputs, one for each spatial axis.
        kernel_size: Sizes of the window.
        strides: Steps of the window.
        dilation_rate: Distances between positions of the window.
        padding: `"valid"`, `"same"` or `"causal"`.
    """

    def __init__(
        self, x, out_sizes, *, kernel_size, strides, dilation_rate, padding
    ):
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
        paddings = [_paddings(*axis, padding) for axis in axes]
        if any(_may_be_positive(n) for pair in paddings for n in pair):
            x = tf.pad(x, [(0, 0), *paddings, (0, 0)])
        self._x = x
        # One constant for all positions.
        self._size = tf.stack([-1, *out_sizes, -1])
        if any(s > 1 for s in strides):
            self._split_into_phases()

    def __iter__(self):
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
    def _phased(self):
        return any(s > 1 for s in self._strides)

    def _split_into_phases(self):
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


def _paddings(size, out_size, kernel_size, stride, dilation, padding):
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


def _at_least_zero(number):
    return max(number, 0) if isinstance(number, int) else tf.maximum(number, 0)


def _may_be_positive(number):
    return not isinstance(number, int) or number > 0
