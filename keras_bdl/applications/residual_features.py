"""The layers of a ResNet++ between the image and the pooling."""

import functools

import keras

from keras_bdl.applications.residual_stages import residual_stages


def residual_features(x, architecture, filters, branch_scale, convolution):
    """Applies stem, residual blocks and a last SELU.

    Args:
        x: Images.
        architecture: The `Architecture`.
        filters: Filters of the first stage.
        branch_scale: Initial scale of the last convolution of a branch.
        convolution: Makes a `WeightNormConv2D` of its arguments.
    """
    stem = architecture.stem
    x = convolution(
        filters,
        stem.kernel_size,
        strides=stem.strides,
        scale_initializer=keras.initializers.Constant(stem.scale),
        name="stem_conv",
    )(x)
    block = functools.partial(
        _block, architecture.branch, branch_scale, convolution
    )
    x = residual_stages(x, architecture, filters, block)
    return keras.layers.Activation("selu", name="selu")(x)


def _block(branch, branch_scale, convolution, x, width, strides, project, name):
    # No SELU on the sum: at depth 110 the identity would pass 54 of them,
    # each multiplies what is positive by 1.05, and the variance ends at 30.
    y = keras.layers.Activation("selu", name=f"{name}_selu")(x)
    if project:
        x = convolution(
            width * branch[-1].expansion,
            1,
            strides=strides,
            use_bias=False,  # the branch has one for the same sum
            name=f"{name}_projection",
        )(y)
    for k, layer in enumerate(branch, start=1):
        last = k == len(branch)
        y = convolution(
            width * layer.expansion,
            layer.kernel_size,
            strides=strides if layer.strided else 1,
            activation=None if last else "selu",
            scale_initializer=keras.initializers.Constant(
                branch_scale if last else 1.0
            ),
            name=f"{name}_conv{k}",
        )(y)
    return keras.layers.Add(name=f"{name}_add")([x, y])
