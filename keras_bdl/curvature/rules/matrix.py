"""What rules of layers have in common that multiply by a matrix."""

import math

from keras import ops

from keras_bdl.curvature.reductions import outer_moments
from keras_bdl.curvature.reductions import outer_products
from keras_bdl.curvature.reductions import sum_and_squares
from keras_bdl.curvature.rule import Rule


class MatrixRule(Rule):
    """The rule for a kernel and a bias.

    The kernel consists of blocks, one or one for each place in the window of
    a convolution, and each block is a matrix `(in, out)`, or one for each
    group. Where x are the inputs of a block,

        g_i = sum_p x_ip dz_ip^T                                          (1)

    is its gradient.
    """

    def weights(self, layer):
        """Returns the kernel and the bias, if there is one."""
        bias = getattr(layer, "bias", None)
        return [layer.kernel] + ([] if bias is None else [bias])

    def blocks(self, layer, inputs, cotangents):
        """Yields x and dz of each block.

        Args:
            layer: The layer.
            inputs: Its inputs.
            cotangents: dL/dz, of the shape of its outputs.

        Yields:
            Tensors `(examples * groups, positions, in)` and
            `(examples * groups, positions, out)`.
        """
        raise NotImplementedError

    def places(self, layer, inputs, cotangents):
        """Yields blocks of which each has the same dz, for `rows`."""
        return self.blocks(layer, inputs, cotangents)

    def groups(self, layer):
        """Returns the number of groups."""
        return 1

    def kernel_of_blocks(self, layer, blocks):
        """Makes a tensor like the kernel of one for each block.

        Args:
            layer: The layer.
            blocks: Tensors `(..., groups, in, out)`.

        Returns:
            A tensor `(..., *kernel.shape)`.
        """
        raise NotImplementedError

    def bias_per_example(self, layer, cotangents):
        """Returns the gradients by the bias."""
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
        """Returns the moments, block by block."""
        each = [self.blocks(layer, *call) for call in calls]
        groups = self.groups(layer)
        moments = [
            outer_moments(blocks, groups, example_weights)
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
            found.append(sum_and_squares(bias, example_weights))
        return found

    def matrix_shape(self, layer):
        """Returns `(in, out)`, with the places of a window in `in`."""
        if self.groups(layer) > 1:
            return None
        return math.prod(layer.kernel.shape[:-1]), layer.kernel.shape[-1]

    def rows(self, layer, inputs, cotangents):
        """Returns the inputs of all blocks side by side, and dz."""
        blocks = list(self.places(layer, inputs, cotangents))
        x = [x for x, _ in blocks]
        return (
            x[0] if len(x) == 1 else ops.concatenate(x, axis=-1),
            blocks[0][1],
        )
