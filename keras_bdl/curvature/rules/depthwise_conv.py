"""The rule for convolutions of each channel by itself."""

import keras
from keras import ops

from keras_bdl.curvature.reductions import in_full_precision
from keras_bdl.curvature.registry import register_rule
from keras_bdl.curvature.rule import Rule
from keras_bdl.curvature.rule import summed_over_positions
from keras_bdl.curvature.rules.conv import channels_last
from keras_bdl.curvature.rules.dense import positions_of
from keras_bdl.curvature.rules.windows import Windows


@register_rule(keras.layers.DepthwiseConv1D, keras.layers.DepthwiseConv2D)
class DepthwiseConvRule(Rule):
    """The rule for `DepthwiseConv1D` and `DepthwiseConv2D`."""

    def weights(self, layer):
        """Returns the kernel and the bias, if there is one."""
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
    """Returns the gradients of each example by a depthwise kernel.

    Args:
        layer: A layer with a depthwise convolution.
        x: Its inputs, channels last.
        dz: The cotangents of that convolution, channels last.

    Returns:
        A tensor `(examples, *kernel_size, channels, multiplier)`.
    """
    windows = Windows(
        x,
        ops.shape(dz)[1:-1],
        layer.kernel_size,
        layer.strides,
        layer.dilation_rate,
        layer.padding,
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
