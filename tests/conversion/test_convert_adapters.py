"""Layers with an adapter (LoRA) get distributions over the adapter alone."""

import keras
import numpy as np
import pytest
from keras import layers

import keras_bdl as bdl
from keras_bdl import convert
from tests.helpers import cross_entropy

RNG = np.random.default_rng(0)
LAYERS = {
    "Dense": ((5, 6), layers.Dense, (4, "tanh"), {}),
    "EinsumDense to heads": (
        (5, 6),
        layers.EinsumDense,
        ("abc,cde->abde", (5, 3, 4)),
        {"bias_axes": "de", "activation": "relu"},
    ),
    "EinsumDense from heads": (
        (5, 3, 4),
        layers.EinsumDense,
        ("abcd,cde->abe", (None, 7)),
        {},
    ),
    "Conv1D": (
        (8, 6),
        layers.Conv1D,
        (4, 3),
        {"padding": "causal", "dilation_rate": 2},
    ),
    "Conv2D": ((8, 8, 3), layers.Conv2D, (4, 3), {"strides": 2}),
    "Embedding": ((5,), layers.Embedding, (9, 4), {"mask_zero": True}),
}


def adapted_network(name):
    """A layer with an adapter, its weights random, and inputs."""
    shape, cls, args, options = LAYERS[name]
    layer = cls(*args, **options)
    model = keras.Sequential([keras.Input(shape), layer])
    layer.enable_lora(2, lora_alpha=3.0)
    for weight in model.weights:
        weight.assign(0.5 * RNG.normal(size=weight.shape))
    if cls is layers.Embedding:
        return model, RNG.integers(0, 9, (3, *shape))
    return model, RNG.normal(size=(3, *shape)).astype("float32")


@pytest.mark.parametrize("name", LAYERS)
def test_converted_adapter_computes_the_same_and_trains_what_trained(
    name, tmp_path
):
    model, x = adapted_network(name)
    copy = convert(model, {"lora": "mean_field"}, verbose=0)
    np.testing.assert_allclose(copy(x), model(x), rtol=1e-5, atol=1e-5)
    trained = [tuple(w.shape) for w in model.trainable_weights]
    (layer,) = copy.layers
    posteriors = [
        *layer.down.weight_posteriors,
        *layer.up.weight_posteriors,
    ]
    # A convolution with a window of one position multiplies by a matrix.
    sizes = [int(np.prod(p.mean.shape)) for p in posteriors]
    assert sorted(sizes) == sorted(int(np.prod(s)) for s in trained)
    assert len(copy.trainable_weights) == 2 * len(posteriors)
    copy.save(tmp_path / "copy.keras")
    loaded = keras.models.load_model(tmp_path / "copy.keras")
    np.testing.assert_array_equal(loaded(x), copy(x))
    loaded.trainable = False
    loaded.trainable = True
    assert len(loaded.trainable_weights) == 2 * len(posteriors)


def test_a_draw_is_a_low_rank_product_of_drawn_factors():
    model, x = adapted_network("Dense")
    copy = convert(model, "radial", seed=3, verbose=0)
    (layer,) = copy.layers
    for posterior in (
        *layer.down.weight_posteriors,
        *layer.up.weight_posteriors,
    ):
        posterior.rho.assign(np.full(posterior.rho.shape, 0.5))
    posterior = bdl.posterior_of(copy)
    with posterior.sampled(copy, seed=1):
        found = copy.predict(x, verbose=0)
        (a,), (b, bias) = (
            layer.down.get_weights()[::2],
            (layer.up.get_weights()[::2]),
        )
    means = layer.up.get_weights()[::2]
    assert np.abs(b - means[0]).min() > 0 and np.abs(bias - means[1]).min() > 0
    kernel = layer.layer.get_weights()[0]
    expected = np.tanh(x @ (kernel + 1.5 * a @ b) + bias)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


def test_training_leaves_the_kernel_and_adds_the_kl_of_the_adapter():
    model, x = adapted_network("Dense")
    copy = convert(model, {"lora": "mean_field"}, verbose=0)
    (layer,) = copy.layers
    kernel = layer.layer.get_weights()[0]
    copy.compile("adam", cross_entropy())
    kl = sum(float(part.kl_divergence()) for part in (layer.down, layer.up))
    logs = copy.fit(x, np.zeros((3, 5)), verbose=0).history
    assert logs["kl"][0] == pytest.approx(kl / 3, rel=1e-5)
    np.testing.assert_array_equal(layer.layer.get_weights()[0], kernel)


def test_a_frozen_adapter_stays_frozen():
    model, _ = adapted_network("Dense")
    model.layers[0].trainable = False
    copy = convert(model, {"lora": "mean_field"}, verbose=0)
    assert not copy.trainable_weights


def test_converting_again_leaves_the_frozen_kernel():
    model, x = adapted_network("Dense")
    model.add(layers.Dense(3))
    once = convert(model, {"lora": "mean_field"}, verbose=0)
    copy = convert(once, {"lora": None, layers.Layer: "radial"}, verbose=0)
    kinds = [type(layer).__name__ for layer in copy.layers]
    assert kinds == ["AdaptedLayer", "RadialDense"]
    assert type(copy.layers[0].layer) is layers.Dense
    np.testing.assert_allclose(copy(x), model(x), rtol=1e-5, atol=1e-5)


def test_regularizers_apply_to_both_factors_and_the_bias():
    layer = layers.Dense(4, kernel_regularizer="l2", bias_regularizer="l2")
    model = keras.Sequential([keras.Input((5,)), layer])
    layer.enable_lora(2)
    for weight in model.weights:
        weight.assign(RNG.normal(size=weight.shape))
    copy = convert(model, {"lora": "mean_field"}, verbose=0)
    assert sum(map(float, copy.losses)) == pytest.approx(
        sum(map(float, model.losses)), rel=1e-5
    )


class Attention(layers.Layer):
    """A block that makes its layers itself, with an adapter in one."""

    def build(self, shape):
        self.attention = layers.MultiHeadAttention(2, 3, name="attention")
        self.attention.build(shape, shape)

    def call(self, x):
        return self.attention(x, x)


def test_adapters_inside_a_block_stay_if_another_layer_is_converted():
    block = Attention()
    model = keras.Sequential(
        [keras.Input((5, 4)), block, layers.Dense(3, name="head")]
    )
    block.attention.trainable = False
    block.attention.query_dense.trainable = True
    block.attention.query_dense.enable_lora(2, lora_alpha=3.0)
    for weight in model.weights:
        weight.assign(RNG.normal(size=weight.shape))
    x = RNG.normal(size=(2, 5, 4)).astype("float32")
    for to in ({"head": "mean_field"}, {"lora": "mean_field"}):
        copy = convert(model, to, verbose=0)
        np.testing.assert_allclose(copy(x), model(x), rtol=1e-4, atol=1e-4)
    (trained,) = (
        w
        for w in convert(model, {"head": "radial"}, verbose=0).weights
        if w.name == "lora_kernel_a"
    )
    assert trained.trainable


def test_other_layers_stay_and_dropout_has_no_rule(capsys):
    model = keras.Sequential(
        [
            keras.Input((6,)),
            layers.Dense(4, lora_rank=1, name="adapted"),
            layers.Dense(3, name="head"),
        ]
    )
    copy = convert(model, {"lora": "mean_field"})
    assert [type(layer).__name__ for layer in copy.layers] == [
        *("AdaptedLayer", "Dense")
    ]
    assert capsys.readouterr().out == "Converted to mean_field: 1 Dense\n"
    convert(model, "mc_dropout", rate=0.1)
    assert "no rule converts: Dense: adapted" in capsys.readouterr().out
