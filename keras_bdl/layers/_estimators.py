"""Three ways to compute outputs from a draw: weight, flipout and local.

Each takes a `Variational` layer, its inputs and a `ForwardPass`.
`layer.call_with(inputs, attributes)` calls the Keras layer with other values of
some attributes.
"""

from collections.abc import Iterable
from typing import Any

import keras
from keras import ops

from keras_bdl._aliases import ArrayLike
from keras_bdl._random import _noise as forward_pass_noise
from keras_bdl.layers._weight_draw import ForwardPass


def random_signs(
    x: ArrayLike, axes: Iterable[int], seed: Any, stream: int
) -> ArrayLike:
    """Returns signs for x that differ along axis 0, of examples, and `axes`."""
    rank = len(x.shape)
    varied = {0, *(axis % rank for axis in axes)}
    shape = [
        size if axis in varied else 1 for axis, size in enumerate(ops.shape(x))
    ]
    return forward_pass_noise.signs(shape, x.dtype, seed, stream)


def sign_axes(layer: Any) -> tuple[list[int], list[int]]:
    """Returns the axes along which signs of inputs and of outputs differ.

    Signs of inputs and outputs act like signs of the weights between them, so
    each example has its own kernel. All positions share this kernel, so signs
    must not differ along the axes of positions.
    """
    if isinstance(layer, keras.layers.EinsumDense):
        biased = layer.variational_bias and layer.bias_axes is not None
        return _einsum_axes(layer.equation, layer.bias_axes if biased else None)
    data_format = getattr(layer, "data_format", "channels_last")
    axis = 1 if data_format == "channels_first" else -1
    return [axis], [axis]


def _einsum_axes(
    equation: str, bias_axes: str | None
) -> tuple[list[int], list[int]]:
    inputs, kernel, outputs = equation.replace("->", ",").split(",")
    mixed = set(kernel) & set(inputs)
    made = (set(kernel) & set(outputs)) - mixed
    if bias_axes is not None:
        # The signs of the outputs also multiply the bias.
        made &= set(bias_axes)
    return _positions(mixed, inputs), _positions(made, outputs)


def _positions(labels: Iterable[str], axes: str) -> list[int]:
    """Returns the positions of some labels in the axes of an einsum term.

    If the axes start with an ellipsis, the positions count from the end.
    """
    start = -len(axes) if axes.startswith("...") else 0
    return [start + i for i, label in enumerate(axes) if label in labels]


# The estimators subtract the noise of outputs, which is symmetric. If the noise
# is added and an activation follows, TensorFlow 2.21 fails to optimize the
# graph of a dense layer on a CPU, and prints pages of errors.

# Lower bound of variances, because the gradient of a square root is infinite
# at 0.
SMALLEST_VARIANCE = 1e-30


def weight(
    layer: Any, inputs: ArrayLike, forward_pass: ForwardPass
) -> ArrayLike:
    """Uses one draw for the whole batch."""
    return layer.call_with(inputs, _cast(layer, forward_pass.drawn))


def flipout(
    layer: Any, inputs: ArrayLike, forward_pass: ForwardPass
) -> ArrayLike:
    """Uses one draw, with new random signs for each example."""
    input_axes, output_axes = sign_axes(layer)
    of_inputs, of_outputs = forward_pass.sign_streams
    seed = forward_pass.seed
    noise = layer.call_with(
        inputs * random_signs(inputs, input_axes, seed, of_inputs),
        _linear(layer) | _cast(layer, forward_pass.drawn),
    )
    noise *= random_signs(noise, output_axes, seed, of_outputs)
    return _activate(layer, _mean(layer, inputs, forward_pass) - noise)


def local(
    layer: Any, inputs: ArrayLike, forward_pass: ForwardPass
) -> ArrayLike:
    """Draws independent noise for each output."""
    # Squares of small numbers underflow in half precision.
    variance = layer.call_with(
        ops.square(ops.cast(inputs, "float32")),
        _linear(layer) | forward_pass.drawn,
    )
    stddev = ops.sqrt(ops.maximum(variance, SMALLEST_VARIANCE))
    noise = forward_pass_noise.normal(
        ops.shape(stddev), forward_pass.seed, forward_pass.next_stream()
    )
    mean = _mean(layer, inputs, forward_pass)
    return _activate(layer, mean - ops.cast(stddev * noise, mean.dtype))


BY_NAME = {"weight": weight, "flipout": flipout, "local": local}


def _mean(
    layer: Any, inputs: ArrayLike, forward_pass: ForwardPass
) -> ArrayLike:
    means = _cast(layer, forward_pass.means)
    return layer.call_with(inputs, {"activation": None} | means)


def _linear(layer: Any) -> dict[str, Any]:
    """Returns attributes for `call_with` that switch off the activation.

    The attributes also switch off the bias if the bias is not variational. The
    output is then linear in the drawn weights.
    """
    if layer.variational_bias:
        return {"activation": None}
    return {"activation": None, "bias": None, "use_bias": False}


def _cast(layer: Any, weights: dict[str, ArrayLike]) -> dict[str, ArrayLike]:
    return {n: ops.cast(w, layer.compute_dtype) for n, w in weights.items()}


def _activate(layer: Any, outputs: ArrayLike) -> ArrayLike:
    return outputs if layer.activation is None else layer.activation(outputs)
