"""The curvature rules for weight-normalised layers."""

from typing import Any

from keras import ops

from keras_bdl._aliases import ArrayLike
from keras_bdl.curvature._rule import ExampleSums
from keras_bdl.curvature._rule import in_full_precision
from keras_bdl.curvature._rule import register_rule
from keras_bdl.curvature._rules._conv import ConvRule
from keras_bdl.curvature._rules._dense import DenseRule
from keras_bdl.curvature._rules._dense import outer_moments
from keras_bdl.curvature._rules._dense import outer_products
from keras_bdl.layers._weight_norm import WeightNormConv2D
from keras_bdl.layers._weight_norm import WeightNormDense
from keras_bdl.priors._vectors import squared_norms


class WeightNormRule:
    """Rule for a kernel that a layer computes from directions and scales.

    G_i is the gradient of example i with respect to the kernel
    theta = phi_s u, with u = phi_d / ||phi_d||. The gradients with respect to
    the scale phi_s (1) and the direction phi_d (2) are

        t_i = sum_in u G_i                                                (1)
        r_i = phi_s / ||phi_d|| (G_i - u t_i)                             (2)

    for each output feature. The rule computes t_i without G_i: t_i is the sum
    over positions of cotangents times outputs of the layer with the kernel u.

    A subclass lists this class before the rule of the layer with an ordinary
    kernel.
    """

    # Methods of the other rule.
    groups: Any
    blocks: Any
    kernel_of_blocks: Any
    bias_per_example: Any

    def weights(self, layer: Any) -> list:
        """Returns direction and scale, and the bias if the layer has a bias."""
        weights = [layer.direction, layer.scale]
        return weights + ([] if layer.bias is None else [layer.bias])

    def apply(
        self, layer: Any, inputs: ArrayLike, kernel: ArrayLike
    ) -> ArrayLike:
        """Returns the outputs of the layer with `kernel`, without the bias."""
        raise NotImplementedError

    def per_example(
        self, layer: Any, inputs: ArrayLike, cotangents: ArrayLike
    ) -> list:
        """Returns the gradients of each example."""
        groups = self.groups(layer)
        blocks = [
            outer_products(x, dz, groups)
            for x, dz in self.blocks(layer, inputs, cotangents)
        ]
        kernels = self.kernel_of_blocks(layer, blocks)
        unit, factor, curved = _parts(layer)
        t = self._by_scale(layer, inputs, cotangents, unit)
        broadcast = (-1, *[1] * (len(unit.shape) - 1), unit.shape[-1])
        gradients = [
            factor * (kernels - curved * unit * ops.reshape(t, broadcast)),
            t,
        ]
        if layer.bias is not None:
            gradients.append(self.bias_per_example(layer, cotangents))
        return gradients

    def moments(
        self, layer: Any, calls: list, example_weights: ArrayLike | None
    ) -> list:
        """Returns the moments, block by block."""
        sums = ExampleSums(example_weights)
        groups = self.groups(layer)
        unit, factor, curved = _parts(layer)
        t: Any = sum(self._by_scale(layer, x, dz, unit) for x, dz in calls)
        split = ops.reshape(t, (-1, groups, t.shape[-1] // groups))
        each = [self.blocks(layer, *call) for call in calls]
        units = _blocks_of_kernel(curved * unit, groups)
        moments = [
            outer_moments(
                list(blocks), groups=groups, sums=sums, minus=(units[i], split)
            )
            for i, blocks in enumerate(zip(*each, strict=True))
        ]
        gradient, squares = (
            self.kernel_of_blocks(layer, list(blocks))
            for blocks in zip(*moments, strict=True)
        )
        found = [(factor * gradient, ops.square(factor) * squares), sums.of(t)]
        if layer.bias is not None:
            bias: Any = sum(self.bias_per_example(layer, dz) for _, dz in calls)
            found.append(sums.of(bias))
        return found

    def matrices(self, layer: Any) -> list:
        """Returns `[]`: the layer computes its kernel from variables."""
        return []

    def _by_scale(
        self,
        layer: Any,
        inputs: ArrayLike,
        cotangents: ArrayLike,
        unit: ArrayLike,
    ) -> ArrayLike:
        x = in_full_precision(inputs)
        outputs = self.apply(layer, x, ops.cast(unit, x.dtype))
        return self.bias_per_example(layer, cotangents * outputs)  # (1)


@register_rule(WeightNormDense)
class WeightNormDenseRule(WeightNormRule, DenseRule):
    """The rule for `WeightNormDense`."""

    def apply(
        self, layer: Any, inputs: ArrayLike, kernel: ArrayLike
    ) -> ArrayLike:
        """Returns the outputs of the layer with `kernel`, without the bias."""
        return ops.matmul(inputs, kernel)


@register_rule(WeightNormConv2D)
class WeightNormConvRule(WeightNormRule, ConvRule):
    """The rule for `WeightNormConv2D`."""

    stacks_rows = False

    def apply(
        self, layer: Any, inputs: ArrayLike, kernel: ArrayLike
    ) -> ArrayLike:
        """Returns the outputs of the layer with `kernel`, without the bias."""
        return layer.convolution_op(inputs, kernel)


def _parts(layer: Any) -> tuple[ArrayLike, ArrayLike, ArrayLike]:
    """Returns u, phi_s / ||phi_d||, and 1 where u has length 1, else 0."""
    direction = in_full_precision(ops.convert_to_tensor(layer.direction))
    norms = squared_norms(direction)
    # The layer does not lengthen directions shorter than 1e-6.
    inverse = ops.rsqrt(ops.maximum(norms, 1e-12))
    curved = ops.cast(norms > 1e-12, direction.dtype)
    return direction * inverse, layer.scale * inverse, curved


def _blocks_of_kernel(kernel: ArrayLike, groups: int) -> ArrayLike:
    """Returns a kernel as `(blocks, groups, in, out)`."""
    size_in, size_out = kernel.shape[-2:]
    split = ops.reshape(kernel, (-1, size_in, groups, size_out // groups))
    return ops.transpose(split, (0, 2, 1, 3))
