"""Rule for dense layers, and the base class of rules with a matrix."""

import functools
import math

import keras
from keras import ops

from keras_bdl._backend import call_shared
from keras_bdl.curvature._matrix import Matrix
from keras_bdl.curvature._reductions import ExampleSums
from keras_bdl.curvature._reductions import in_full_precision
from keras_bdl.curvature._reductions import outer_moments
from keras_bdl.curvature._reductions import outer_products
from keras_bdl.curvature._rule import Rule
from keras_bdl.curvature._rule import register_rule
from keras_bdl.curvature._rule import summed_over_positions


class MatrixRule(Rule):
    """Base of the rules for a kernel and a bias.

    The kernel consists of blocks. A dense layer has one block; a convolution
    has one block for each position in its window. Each block is a matrix
    `(in, out)`, or one matrix for each group. With x the inputs of a block, the
    gradient of the block is

        g_i = sum_p x_ip dz_ip^T                                          (1)
    """

    def weights(self, layer):
        """Returns the kernel, and the bias if the layer has a bias."""
        bias = getattr(layer, "bias", None)
        return [layer.kernel] + ([] if bias is None else [bias])

    def blocks(self, layer, inputs, cotangents):
        """Yields x and dz of each block.

        Args:
            layer: The layer.
            inputs: The inputs of the layer.
            cotangents: dL/dz, of the shape of the outputs.

        Yields:
            Tensors `(examples * groups, positions, in)` and
            `(examples * groups, positions, out)`.
        """
        raise NotImplementedError

    def places(self, layer, inputs, cotangents):
        """Yields pairs of x and dz as `blocks` does, with the same dz in all.

        `rows` joins the x and returns the dz of the first pair.
        """
        return self.blocks(layer, inputs, cotangents)

    def groups(self, layer):
        """Returns the number of groups: a block has a matrix for each group."""
        return 1

    def kernel_of_blocks(self, layer, blocks):
        """Returns the blocks joined into a tensor with the axes of the kernel.

        Args:
            layer: The layer.
            blocks: Tensors `(..., groups, in, out)`.

        Returns:
            A tensor `(..., *kernel.shape)`.
        """
        raise NotImplementedError

    def bias_per_example(self, layer, cotangents):
        """Returns the gradients with respect to the bias."""
        raise NotImplementedError

    def constants(self, layer):
        """Returns all that `moments` reads of the layer, as a hashable object.

        Layers with equal constants share a trace.
        """
        raise NotImplementedError

    def per_example(self, layer, inputs, cotangents):
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

    def moments(self, layer, calls, example_weights):
        """Returns the moments, computed block by block."""
        return call_shared(
            functools.partial(self._moments, layer),
            calls,
            example_weights,
            key=(self, self.constants(layer)),
            sizes=True,
        )

    def _moments(self, layer, calls, example_weights):
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

    def matrices(self, layer):
        """Returns the kernel if it has one group.

        The axis `in` of the matrix includes all positions of a window.
        """
        if self.groups(layer) > 1:
            return []
        *ins, outs = layer.kernel.shape
        rows = functools.partial(self.rows, layer)
        return [Matrix(layer.kernel, layer.bias, (math.prod(ins), outs), rows)]

    def rows(self, layer, inputs, cotangents):
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

    def constants(self, layer):
        """Returns the shape of the kernel, and whether there is a bias."""
        return layer.kernel.shape, layer.bias is None

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
        leading: Number of axes of examples. Defaults to `1`.
        trailing: Number of axes of features. Defaults to `1`.
    """

    def sizes_of(shape):
        end = len(shape) - trailing
        parts = shape[:leading], shape[leading:end], shape[end:]
        return [None if None in p else math.prod(p) for p in parts]

    sizes = sizes_of(tuple(tensor.shape))
    if sizes.count(None) > 1:
        sizes = sizes_of(ops.shape(tensor))
    return ops.reshape(tensor, [-1 if s is None else s for s in sizes])
