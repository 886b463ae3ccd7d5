import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_bdl import layers
from keras_bdl.layers import _estimators as estimators

RNG = np.random.default_rng(0)
IMAGE = (6, 6, 4)
CONVOLUTIONS = [
    ("Conv1D", (8, 4), {"padding": "causal", "dilation_rate": 2}),
    ("Conv2D", IMAGE, {"strides": 2, "padding": "same"}),
    ("Conv2D", IMAGE, {"groups": 2}),
    ("Conv2D", (4, 6, 6), {"data_format": "channels_first"}),
    ("Conv3D", (4, 4, 4, 2), {"dilation_rate": 2}),
    ("Conv2DTranspose", IMAGE, {"strides": 2}),
    ("DepthwiseConv2D", IMAGE, {"depth_multiplier": 2}),
    ("DepthwiseConv2D", (4, 6, 6), {"data_format": "channels_first"}),
]
EQUATIONS = [
    ("ab,bc->ac", (5,), (3,), "c"),
    ("abc,cde->abde", (3, 4), (None, 2, 3), "de"),
    ("abc,cde->abde", (3, 4), (None, 2, 3), "e"),
    ("abc,cde->abed", (3, 4), (None, 3, 2), None),
    ("abc,bcd->abd", (3, 4), (3, 2), "d"),
    ("abcd,cdf->abf", (2, 3, 4), (None, 2), "f"),
    ("...x,xy->...y", (3, 4), (2,), "y"),
]


def call(name, shape, **kwargs):
    """Returns a layer, inputs, outputs, and the signs that made them."""
    layer = getattr(layers, f"MeanField{name}")(
        **kwargs,
        bias_initializer="random_normal",
        rho_initializer="zeros",
        estimator="flipout",
        dataset_size=1,
    )
    x = RNG.normal(size=(3, *shape)).astype("float32")
    y = layer(x, training=True)
    drawn = layer._forward_pass()
    used = [
        np.asarray(estimators.random_signs(tensor, axes, drawn.seed, stream))
        for tensor, axes, stream in zip(
            (x, y),
            estimators.sign_axes(layer),
            drawn.sign_streams,
            strict=True,
        )
    ]
    for values in used:
        np.testing.assert_array_equal(np.abs(values), 1)
    return layer, x, np.asarray(y), used, drawn


def sign_kernel(name, kernel, inputs, outputs, groups):
    """Returns the kernel times the channel signs of one example."""
    if name == "DepthwiseConv2D":
        return kernel * inputs[:, None] * outputs.reshape(len(inputs), -1)
    if name == "Conv2DTranspose":
        return kernel * outputs[:, None] * inputs
    # Each group of outputs depends on one group of inputs.
    rows = np.repeat(inputs.reshape(groups, -1).T, len(outputs) // groups, 1)
    return kernel * rows * outputs


@pytest.mark.parametrize("name, shape, kwargs", CONVOLUTIONS)
def test_flipout_of_convolutions_has_a_kernel_for_each_example(
    name, shape, kwargs
):
    kwargs = {"kernel_size": 2, **kwargs}
    if name != "DepthwiseConv2D":
        kwargs["filters"] = 6
    if "data_format" in kwargs:
        try:
            getattr(keras.layers, name)(**kwargs)(np.ones((1, *shape)))
        except tf.errors.UnimplementedError:
            pytest.skip("Keras has no such convolution on this processor")
    layer, x, y, used, drawn = call(name, shape, **kwargs)
    # Each example has one sign per channel.
    by_channel = [
        s.reshape(3, layer_channels)
        for s, layer_channels in zip(
            used, (4 if name != "Conv3D" else 2, layer.bias.shape[0]),
            strict=True,
        )
    ]  # fmt: skip
    twin = getattr(keras.layers, name)(**kwargs)
    twin.build((None, *shape))
    for i, (inputs, outputs) in enumerate(zip(*by_channel, strict=True)):
        noise = sign_kernel(
            name, np.asarray(drawn.drawn["kernel"]), inputs, outputs,
            kwargs.get("groups", 1),
        )  # fmt: skip
        bias = np.asarray(layer.bias) - drawn.drawn["bias"] * outputs
        twin.set_weights([np.asarray(layer.kernel) - noise, bias])
        np.testing.assert_allclose(y[i], twin(x[i : i + 1])[0], atol=1e-5)


@pytest.mark.parametrize("equation, shape, output_shape, bias_axes", EQUATIONS)
def test_flipout_of_einsum_has_a_kernel_for_each_example(
    equation, shape, output_shape, bias_axes
):
    layer, x, y, used, drawn = call(
        "EinsumDense",
        shape,
        equation=equation,
        output_shape=output_shape,
        bias_axes=bias_axes,
    )
    inputs, kernel, outputs = (
        equation.replace("...", "ab").replace("->", ",").split(",")
    )
    for i in range(3):
        # Axes without signs have size 1.
        noise = np.array(drawn.drawn["kernel"])
        bias = 0.0 if bias_axes is None else np.array(drawn.drawn["bias"])
        for labels, values in zip((inputs, outputs), used, strict=True):
            varied = [
                label
                for label, size in zip(
                    labels[1:], values.shape[1:], strict=True
                )
                if size > 1
            ]
            assert set(varied) <= set(kernel)
            signs_of = "".join(varied)
            noise = np.einsum(
                f"{kernel},{signs_of}->{kernel}", noise, values[i].squeeze()
            )
            if labels == outputs and bias_axes is not None:
                bias = np.einsum(
                    f"{bias_axes},{signs_of}->{bias_axes}",
                    bias,
                    values[i].squeeze(),
                )
        expected = np.einsum(
            f"{inputs},{kernel}->{outputs}",
            x[i : i + 1],
            np.asarray(layer.kernel) - noise,
        )[0]
        if bias_axes is not None:
            after = outputs[1:]
            expected = expected + np.einsum(
                f"{bias_axes},{after}->{after}",
                np.asarray(layer.bias) - bias,
                np.ones(expected.shape),
            )
        np.testing.assert_allclose(y[i], expected, atol=1e-5)


@pytest.mark.parametrize(
    "equation, bias_axes, inputs, outputs",
    [
        ("ab,bc->ac", "c", [1], [1]),
        ("abc,cde->abde", "de", [2], [2, 3]),
        # The signs of the outputs also multiply the bias, which has no axis d.
        ("abc,cde->abde", "e", [2], [3]),
        ("abc,cde->abed", None, [2], [2, 3]),
        # Each position b has its own kernel.
        ("abc,bcd->abd", "d", [1, 2], [2]),
        ("...x,xy->...y", "y", [-1], [-1]),
    ],
)
def test_signs_differ_along_every_axis_that_allows_it(
    equation, bias_axes, inputs, outputs
):
    layer = layers.MeanFieldEinsumDense(
        equation, output_shape=(None, 1, 1), bias_axes=bias_axes
    )
    found = [sorted(axes) for axes in estimators.sign_axes(layer)]
    assert found == [inputs, outputs]


def test_signs_are_fair_and_independent():
    x = np.ones((2000, 7, 6), "float32")
    values = np.asarray(estimators.random_signs(x, [-1], (1, 2), 0))
    assert values.shape == (2000, 1, 6)
    values = values[:, 0].astype("float64")
    bound = 5 / np.sqrt(2000)
    assert np.abs(values.mean(0)).max() < bound
    correlation = values.T @ values / 2000
    assert np.abs(correlation - np.eye(6)).max() < bound
    # Neighbouring examples share words of random bits.
    assert np.abs((values[1:] * values[:-1]).mean(0)).max() < bound
