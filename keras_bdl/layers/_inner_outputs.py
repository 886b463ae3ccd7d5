"""The declared outputs of a layer that another layer calls."""

import keras


def outputs_of_inner(
    layer: keras.layers.Layer, inputs: keras.KerasTensor
) -> keras.KerasTensor:
    """Returns shape and dtype of the outputs of an inner layer.

    The inner layer computes in its own precision. Keras would declare the
    precision of the outer layer.

    Args:
        layer: The inner layer, built.
        inputs: What the outer layer passes to the inner layer.
    """
    inputs = layer.dtype_policy.convert_input(
        inputs, layer.autocast, layer.input_dtype
    )
    return layer.compute_output_spec(inputs)
