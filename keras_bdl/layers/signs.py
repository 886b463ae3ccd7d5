"""The random signs of flipout."""

import keras
from keras import ops

from keras_bdl.random import replica_numbers


def random_signs(x, axes, seed):
    """Returns signs to multiply with x.

    Args:
        x: A tensor whose axis 0 counts examples.
        axes: The other axes along which the signs differ.
        seed: Seed of the signs.
    """
    rank = len(x.shape)
    varied = {0, *(axis % rank for axis in axes)}
    shape = [
        size if axis in varied else 1 for axis, size in enumerate(ops.shape(x))
    ]
    return replica_numbers.signs(shape, x.dtype, seed)


def sign_axes(layer):
    """Returns along which axes the signs of inputs and of outputs differ.

    Signs of inputs and outputs amount to signs of the weights between them,
    of a kernel of their own for each example: they must not differ along axes
    of positions, which share the weights.

    Args:
        layer: A variational layer.
    """
    if isinstance(layer, keras.layers.EinsumDense):
        biased = layer.variational_bias and layer.bias_axes is not None
        return _einsum_axes(layer.equation, layer.bias_axes if biased else None)
    data_format = getattr(layer, "data_format", "channels_last")
    axis = 1 if data_format == "channels_first" else -1
    return [axis], [axis]


def _einsum_axes(equation, bias_axes):
    inputs, kernel, outputs = equation.replace("->", ",").split(",")
    mixed = set(kernel) & set(inputs)
    made = (set(kernel) & set(outputs)) - mixed
    if bias_axes is not None:
        # The bias gets the signs of the outputs as well.
        made &= set(bias_axes)
    return _positions(mixed, inputs), _positions(made, outputs)


def _positions(labels, axes):
    """Returns the positions of labels, from the end after an ellipsis."""
    start = -len(axes) if axes.startswith("...") else 0
    return [start + i for i, label in enumerate(axes) if label in labels]
