"""Rules for dense layers and other kernels that multiply, by outer products."""

import functools
import math
from collections.abc import Iterable
from typing import Any

import keras
import tensorflow as tf
from keras import ops

from keras_bdl._backend import after
from keras_bdl._backend import call_shared
from keras_bdl.curvature._rule import ExampleSums
from keras_bdl.curvature._rule import Rule
from keras_bdl.curvature._rule import WeightMatrix
from keras_bdl.curvature._rule import in_full_precision
from keras_bdl.curvature._rule import joined_positions
from keras_bdl.curvature._rule import register_rule
from keras_bdl.curvature._rule import summed_over_positions

# `BUDGET`: most entries of per-example gradients in memory at a time, 64 MiB in
# float32. `LIKELY`: the assumed batch size if the shape does not contain the
# batch size.
BUDGET = 2**24
LIKELY = 128


class MatrixRule(Rule):
    """Base of the rules for a kernel and a bias.

    The kernel consists of blocks. A dense layer has one block; a convolution
    has one block for each position in its window. Each block is a matrix
    `(in, out)`, or one matrix for each group. With x the inputs of a block, the
    gradient of the block is

        g_i = sum_p x_ip dz_ip^T                                          (1)
    """

    def weights(self, layer: Any) -> list:
        """Returns the kernel, and the bias if the layer has a bias."""
        bias = getattr(layer, "bias", None)
        return [layer.kernel] + ([] if bias is None else [bias])

    def blocks(
        self, layer: Any, inputs: Any, cotangents: Any
    ) -> Iterable[tuple[Any, Any]]:
        """Yields x and dz of each block.

        These are `(examples * groups, positions, in)` and
        `(examples * groups, positions, out)`.
        """
        raise NotImplementedError

    def places(
        self, layer: Any, inputs: Any, cotangents: Any
    ) -> Iterable[tuple[Any, Any]]:
        """Yields pairs of x and dz as `blocks` does, with the same dz in all.

        `rows` joins the x and returns the dz of the first pair.
        """
        return self.blocks(layer, inputs, cotangents)

    def groups(self, layer: Any) -> int:
        """Returns the number of groups: a block has a matrix for each group."""
        return 1

    def kernel_of_blocks(self, layer: Any, blocks: list) -> Any:
        """Returns blocks `(..., groups, in, out)` as `(..., *kernel.shape)`."""
        raise NotImplementedError

    def bias_per_example(self, layer: Any, cotangents: Any) -> Any:
        """Returns the gradients with respect to the bias."""
        raise NotImplementedError

    def constants(self, layer: Any) -> tuple:
        """Returns all that `moments` reads of the layer, as a hashable object.

        Layers with equal constants share a trace.
        """
        raise NotImplementedError

    def per_example(self, layer: Any, inputs: Any, cotangents: Any) -> list:
        """Returns the gradients of each example."""
        groups = self.groups(layer)
        blocks = [
            outer_products(*block, groups)
            for block in self.blocks(layer, inputs, cotangents)
        ]
        gradients = [self.kernel_of_blocks(layer, blocks)]
        if len(self.weights(layer)) > 1:
            gradients.append(self.bias_per_example(layer, cotangents))
        return gradients

    def moments(self, layer: Any, calls: list, example_weights: Any) -> list:
        """Returns the moments, computed block by block."""
        return call_shared(
            functools.partial(self._moments, layer),
            calls,
            example_weights,
            key=(self, self.constants(layer)),
            sizes=True,
        )

    def _moments(self, layer: Any, calls: list, example_weights: Any) -> list:
        sums = ExampleSums(example_weights)
        each = [self.blocks(layer, *call) for call in calls]
        groups = self.groups(layer)
        moments = [
            outer_moments(blocks, groups=groups, sums=sums)
            for blocks in zip(*each, strict=True)
        ]
        found = [
            tuple(
                self.kernel_of_blocks(layer, list(blocks))
                for blocks in zip(*moments, strict=True)
            )
        ]
        if len(self.weights(layer)) > 1:
            bias = sum(self.bias_per_example(layer, dz) for _, dz in calls)
            found.append(sums.of(bias))
        return found

    def matrices(self, layer: Any) -> list[WeightMatrix]:
        """Returns the kernel if it has one group.

        The axis `in` of the matrix includes all positions of a window.
        """
        if self.groups(layer) > 1:
            return []
        *ins, outs = layer.kernel.shape
        rows = functools.partial(self.rows, layer)
        return [
            WeightMatrix(layer.kernel, layer.bias, (math.prod(ins), outs), rows)
        ]

    def rows(self, layer: Any, inputs: Any, cotangents: Any) -> tuple[Any, Any]:
        """Returns the inputs of all blocks, joined on the last axis, and dz."""
        blocks = list(self.places(layer, inputs, cotangents))
        x = [x for x, _ in blocks]
        return (
            x[0] if len(x) == 1 else ops.concatenate(x, axis=-1),
            blocks[0][1],
        )


@register_rule(keras.layers.Dense)
class DenseRule(MatrixRule):
    """Rule for `Dense`; all axes but the first and the last are positions."""

    def constants(self, layer: Any) -> tuple:
        """Returns the shape of the kernel, and whether there is a bias."""
        return layer.kernel.shape, layer.bias is None

    def blocks(
        self, layer: Any, inputs: Any, cotangents: Any
    ) -> Iterable[tuple[Any, Any]]:
        """Yields the only block."""
        yield positions_of(in_full_precision(inputs)), positions_of(cotangents)

    def kernel_of_blocks(self, layer: Any, blocks: list) -> Any:
        """Returns the only block."""
        return ops.squeeze(blocks[0], axis=-3)

    def bias_per_example(self, layer: Any, cotangents: Any) -> Any:
        """Returns the sums over positions."""
        return summed_over_positions(cotangents)


def positions_of(tensor: Any, leading: int = 1, trailing: int = 1) -> Any:
    """Returns a tensor as `(examples, positions, features)`.

    `leading` axes are examples, and `trailing` axes are features.
    """

    def sizes_of(shape: tuple) -> list:
        end = len(shape) - trailing
        parts = shape[:leading], shape[leading:end], shape[end:]
        return [None if None in p else math.prod(p) for p in parts]

    sizes = sizes_of(tuple(tensor.shape))
    if sizes.count(None) > 1:
        sizes = sizes_of(ops.shape(tensor))
    return ops.reshape(tensor, [-1 if s is None else s for s in sizes])


def outer_moments(
    calls: list, *, groups: int, sums: ExampleSums, minus: tuple | None = None
) -> tuple:
    """Returns the first and second moments of sums of outer products.

    For the gradients of a matrix,

        g_i = sum_p x_ip dz_ip^T - u t_i                                  (1)

    the moments are sum_i g_i and sum_i v_i g_i^2, each `(groups, in, out)`. If
    an example has one position, matrix products over the examples give both
    moments, and no g_i is computed. Each of `calls` has x, `(examples * groups,
    positions, in)`, and dz, `(examples * groups, positions, out)`. `minus` has
    u, `(groups, in, out)`, and t, `(examples, groups, out)`.
    """
    x, dz = joined_positions(calls)
    if x.shape[1] == 1:
        return _moments_of_one_position(
            x, dz, groups, sums.example_weights, minus
        )

    def moments(x: Any, piece: slice) -> tuple:
        g = _matmul_transposed(x, dz)
        shape = (groups, *g.shape[1:])
        if minus is not None:
            u, t = minus
            g = ops.reshape(g, (-1, *shape))
            g = g - u[:, piece] * t[:, :, None]  # (1)
        return sums.of(g, shape)

    pieces = _pieces_of(x.shape[-1], (x.shape[0] or LIKELY) * dz.shape[-1])
    if len(pieces) == 1:
        return moments(x, pieces[0])
    results: list[tuple] = []
    for piece in pieces:
        # Compute one piece after the other. Otherwise memory would hold the
        # gradients of all pieces at once.
        part = x[:, :, piece]
        part = after(results[-1], part) if results else part
        results.append(moments(part, piece))
    return tuple(
        ops.concatenate(parts, axis=1) for parts in zip(*results, strict=True)
    )


def outer_products(x: Any, dz: Any, groups: int = 1) -> Any:
    """Returns the per-example gradients sum_p x_ip dz_ip^T of one call.

    x is `(examples * groups, positions, in)`, and the result is
    `(examples, groups, in, out)`.
    """
    g = _matmul_transposed(x, dz)
    return ops.reshape(g, (-1, groups, *g.shape[1:]))


def _pieces_of(size: int, numbers_each: int) -> list[slice]:
    """Returns slices of `range(size)` with at most `BUDGET` numbers each."""
    length = max(BUDGET // max(numbers_each, 1), 1)
    return [slice(i, i + length) for i in range(0, size, length)]


def _moments_of_one_position(
    x: Any, dz: Any, groups: int, example_weights: Any, minus: tuple | None
) -> tuple:
    x = ops.reshape(x, (-1, groups, x.shape[-1]))
    dz = ops.reshape(dz, (-1, groups, dz.shape[-1]))

    def weighted(values: Any) -> Any:
        return values * example_weights[:, None, None]

    gradient = _summed_outer(x, dz)
    squares = _summed_outer(ops.square(x), weighted(ops.square(dz)))
    if minus is None:
        return gradient, squares
    u, t = minus
    gradient = gradient - u * ops.sum(t, axis=0)[:, None]
    mixed = _summed_outer(x, weighted(dz * t))
    sizes = ops.sum(weighted(ops.square(t)), axis=0)[:, None]
    squares = squares - 2.0 * u * mixed + ops.square(u) * sizes
    # Rounding may make a zero negative.
    return gradient, ops.maximum(squares, 0.0)


def _summed_outer(x: Any, dz: Any) -> Any:
    """Returns sums of outer products over examples, `(groups, in, out)`."""
    if x.shape[1] == 1:
        return tf.matmul(x[:, 0], dz[:, 0], transpose_a=True)[None]
    return ops.einsum("bgi,bgo->gio", x, dz)


def _matmul_transposed(x: Any, dz: Any) -> Any:
    # An explicit transpose would copy.
    return tf.matmul(x, dz, transpose_a=True)
