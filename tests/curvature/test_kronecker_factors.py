import keras
import numpy as np
import pytest
from keras import layers

from keras_bdl import curvature
from tests.curvature.brute_force import float64

EXAMPLES = 6
RNG = np.random.default_rng(0)
WEIGHTS = np.array([0.5, 2.0, 0.0, 1.0, 3.0, 0.1])

CASES = {
    "dense": ((5,), lambda: layers.Dense(4)),
    "dense on sequences": (
        (3, 5),
        lambda: layers.Dense(4, use_bias=False),
    ),
    "conv": ((7, 6, 2), lambda: layers.Conv2D(4, 3, 2, "same")),
    "conv 1d": (
        (7, 2),
        lambda: layers.Conv1D(3, 3, padding="causal", dilation_rate=2),
    ),
    "einsum": (
        (3, 4),
        lambda: layers.EinsumDense("abc,cde->abde", (3, 2, 2), bias_axes="de"),
    ),
    "einsum, two axes in": (
        (3, 4),
        lambda: layers.EinsumDense("abc,bcd->ad", 5, bias_axes="d"),
    ),
}


def build(case):
    shape, make = CASES[case]
    model = keras.Sequential(
        [keras.Input(shape), make(), layers.Activation("tanh")]
    )
    model.compile(loss="mse")
    return model


@pytest.mark.parametrize("weights", [None, WEIGHTS], ids=["", "weighted"])
@pytest.mark.parametrize("case", CASES)
def test_factors_equal_a_loop_over_examples_and_positions(case, weights):
    model = build(case)
    layer = model.layers[0]
    if layer.bias is not None:
        layer.bias.assign(RNG.normal(size=layer.bias.shape))
    x = RNG.normal(size=(EXAMPLES, *CASES[case][0]))
    y = RNG.normal(size=(EXAMPLES, *model.output_shape[1:]))
    with float64():
        twin = build(case)
        twin.set_weights(model.get_weights())
        z = twin.layers[0](x).numpy()
    # dl_i/dz of l_i = mean over outputs of (tanh z - y)^2
    dz = 2 * (np.tanh(z) - y) * (1 - np.tanh(z) ** 2) / y[0].size
    size_out = layer.kernel.shape[-1]
    if case == "einsum":
        size_out = 4
    dz = dz.reshape(EXAMPLES, -1, size_out)
    # Inputs of the matrix, from what the layer does to unit kernels.
    columns = []
    with float64():
        for i in range(np.prod(layer.kernel.shape) // size_out):
            kernel = np.zeros((np.prod(layer.kernel.shape) // size_out, 1))
            kernel = np.repeat(kernel, size_out, 1)
            kernel[i] = 1.0
            arrays = [kernel.reshape(layer.kernel.shape)]
            if layer.bias is not None:
                arrays.append(np.zeros(layer.bias.shape))
            twin.set_weights(arrays)
            out = twin.layers[0](x).numpy()
            columns.append(out.reshape(EXAMPLES, -1, size_out)[..., 0])
    a = np.stack(columns, -1)
    if layer.bias is not None:
        a = np.concatenate([a, np.ones_like(a[..., :1])], -1)
    omega = np.ones(EXAMPLES) if weights is None else weights
    inputs = np.zeros((a.shape[-1],) * 2)
    outputs = np.zeros((size_out,) * 2)
    for i in range(EXAMPLES):
        for p in range(a.shape[1]):
            inputs += omega[i] * np.outer(a[i, p], a[i, p]) / omega.sum()
            outputs += (
                omega[i]
                * np.outer(dz[i, p], dz[i, p])
                / (EXAMPLES * a.shape[1])
            )
    if weights is not None:  # as Keras wants it for outputs with positions
        weights = weights.reshape(-1, *[1] * (y.ndim - 2))
    (factors,) = curvature.kronecker_factors(model, (x, y, weights))
    assert factors.kernel is layer.kernel and factors.bias is layer.bias
    for actual, expected in (
        (factors.inputs, inputs),
        (factors.outputs, outputs),
    ):
        error = np.max(np.abs(actual - expected)) / np.max(np.abs(expected))
        assert error <= 1e-5
