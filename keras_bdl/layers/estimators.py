"""How a draw of the weights enters the outputs of a layer.

Each function takes a layer, its inputs and a `ForwardPass`, and returns the
outputs. The layer calls the one of Keras with other attributes, by
`call_seeing(inputs, attributes)`.

`DRAWN` names the attribute of a `Draw` that each of them needs.
"""

from keras import ops

from keras_bdl.layers.signs import random_signs
from keras_bdl.layers.signs import sign_axes
from keras_bdl.random import replica_numbers

# The noise of outputs is as likely as its opposite, and subtracted: where it is
# added and an activation follows, TensorFlow 2.21 fails to optimize the graph
# of a dense layer on a CPU, and says so with pages of errors.

# Below this variance of an output its root has no gradient.
SMALLEST_VARIANCE = 1e-30


def weight(layer, inputs, forward_pass):
    """One draw for the whole batch."""
    return layer.call_seeing(inputs, _cast(layer, forward_pass.drawn))


def flipout(layer, inputs, forward_pass):
    """One draw, with signs of its own for each example."""
    input_axes, output_axes = sign_axes(layer)
    input_seed, output_seed = forward_pass.sign_seeds()
    noise = layer.call_seeing(
        inputs * random_signs(inputs, input_axes, input_seed),
        _linear(layer) | _cast(layer, forward_pass.drawn),
    )
    noise *= random_signs(noise, output_axes, output_seed)
    return _activate(layer, _mean(layer, inputs, forward_pass) - noise)


def local(layer, inputs, forward_pass):
    """Noise of its own for each output."""
    # Half precision has no room for squares of small numbers.
    variance = layer.call_seeing(
        ops.square(ops.cast(inputs, "float32")),
        _linear(layer) | forward_pass.drawn,
    )
    stddev = ops.sqrt(ops.maximum(variance, SMALLEST_VARIANCE))
    noise = replica_numbers.normal(
        ops.shape(stddev), forward_pass.output_seed()
    )
    mean = _mean(layer, inputs, forward_pass)
    return _activate(layer, mean - ops.cast(stddev * noise, mean.dtype))


BY_NAME = {"weight": weight, "flipout": flipout, "local": local}
DRAWN = {
    "weight": "weights",
    "flipout": "perturbations",
    "local": "variances",
}


def _mean(layer, inputs, forward_pass):
    means = _cast(layer, forward_pass.means)
    return layer.call_seeing(inputs, {"activation": None} | means)


def _linear(layer):
    """What to see for an output that is linear in the drawn weights."""
    if layer.variational_bias:
        return {"activation": None}
    return {"activation": None, "bias": None, "use_bias": False}


def _cast(layer, weights):
    return {n: ops.cast(w, layer.compute_dtype) for n, w in weights.items()}


def _activate(layer, outputs):
    return outputs if layer.activation is None else layer.activation(outputs)
