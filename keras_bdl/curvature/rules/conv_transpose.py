"""The rule for transposed convolutions."""

import keras
from keras import ops

from keras_bdl.curvature.reductions import in_full_precision
from keras_bdl.curvature.registry import register_rule
from keras_bdl.curvature.rules.conv import ConvRule
from keras_bdl.curvature.rules.conv import channels_last
from keras_bdl.curvature.rules.dense import positions_of
from keras_bdl.curvature.rules.windows import Windows


@register_rule(
    keras.layers.Conv1DTranspose,
    keras.layers.Conv2DTranspose,
    keras.layers.Conv3DTranspose,
)
class ConvTransposeRule(ConvRule):
    """The rule for `Conv1DTranspose` and others: a `Conv` backwards.

    The layer is the gradient of a convolution by its inputs, so that the
    window moves over its outputs.
    """

    def groups(self, layer):
        """Returns one: these layers have no groups."""
        return 1

    def blocks(self, layer, inputs, cotangents):
        """Yields what each place of the window sees of dz, and the inputs."""
        x = channels_last(in_full_precision(inputs), layer.data_format)
        dz = channels_last(cotangents, layer.data_format)
        windows = Windows(
            dz,
            ops.shape(x)[1:-1],
            layer.kernel_size,
            layer.strides,
            layer.dilation_rate,
            layer.padding,
        )
        x = positions_of(x)
        for view in windows:
            yield positions_of(view), x

    def matrix_shape(self, layer):
        """Returns `None`: the matrix has `out` times places for outputs."""
        return None
