"""Rules for depthwise and separable convolutions."""

import keras
from keras import ops

from keras_bdl.curvature._reductions import ExampleSums
from keras_bdl.curvature._reductions import in_full_precision
from keras_bdl.curvature._reductions import outer_moments
from keras_bdl.curvature._reductions import outer_products
from keras_bdl.curvature._rule import Rule
from keras_bdl.curvature._rule import register_rule
from keras_bdl.curvature._rule import summed_over_positions
from keras_bdl.curvature._rules._conv import channels_last
from keras_bdl.curvature._rules._dense import positions_of
from keras_bdl.curvature._rules._windows import Windows


@register_rule(keras.layers.DepthwiseConv1D, keras.layers.DepthwiseConv2D)
class DepthwiseConvRule(Rule):
    """Rule for `DepthwiseConv1D` and `DepthwiseConv2D`."""

    def weights(self, layer):
        """Returns the kernel, and the bias if the layer has a bias."""
        return [layer.kernel] + ([] if layer.bias is None else [layer.bias])

    def per_example(self, layer, inputs, cotangents):
        """Returns the gradients of each example."""
        x = channels_last(in_full_precision(inputs), layer.data_format)
        dz = channels_last(cotangents, layer.data_format)
        gradients = [depthwise_kernel_per_example(layer, x, dz)]
        if layer.bias is not None:
            gradients.append(summed_over_positions(dz))
        return gradients


def depthwise_kernel_per_example(layer, x, dz):
    """Returns each example's gradient of a depthwise kernel.

    Args:
        layer: A layer with a depthwise convolution.
        x: The inputs of the layer, channels last.
        dz: The cotangents of the depthwise convolution, channels last.

    Returns:
        A tensor `(examples, *kernel_size, channels, multiplier)`.
    """
    windows = Windows(
        x,
        ops.shape(dz)[1:-1],
        kernel_size=layer.kernel_size,
        strides=layer.strides,
        dilation_rate=layer.dilation_rate,
        padding=layer.padding,
    )
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

    def weights(self, layer):
        """Returns both kernels, and the bias if the layer has a bias."""
        kernels = [layer.depthwise_kernel, layer.pointwise_kernel]
        return kernels + ([] if layer.bias is None else [layer.bias])

    def per_example(self, layer, inputs, cotangents):
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

    def moments(self, layer, calls, example_weights):
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

    def _stages(self, layer, inputs, cotangents):
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
