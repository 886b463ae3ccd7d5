"""Layers with low-rank adapters, and tables that are used twice."""

import keras
import numpy as np
import pytest
from keras import layers
from keras import ops

from keras_bdl import curvature
from tests.curvature.brute_force import assert_close
from tests.curvature.brute_force import check
from tests.helpers import cross_entropy
from tests.helpers import dtype_policy
from tests.helpers import own_garbage

EXAMPLES = 6
RNG = np.random.default_rng(0)

# By name, the shape of an input and layers that are called one after the other.
ADAPTED = {
    "dense": (
        (5,),
        lambda: [
            layers.Dense(4, "tanh", lora_rank=2),
            layers.Dense(3, use_bias=False, lora_rank=1),
        ],
    ),
    "dense on sequences": (
        (4, 3),
        lambda: [layers.Dense(5, "gelu", lora_rank=2), layers.Dense(3)],
    ),
    "einsum dense": (
        (4, 6),
        lambda: [
            layers.EinsumDense(
                "abc,cde->abde", (4, 2, 3), bias_axes="de", lora_rank=2
            ),
            layers.EinsumDense(
                "abcd,cde->abe", (4, 5), bias_axes="e", lora_rank=2
            ),
            layers.EinsumDense("...x,xy->...y", 3, "tanh", lora_rank=1),
            layers.EinsumDense("abc,bcd->abd", (4, 3), lora_rank=2),
        ],
    ),
    "einsum dense whose inputs have the last index of the kernel": (
        (4, 6),
        lambda: [
            layers.EinsumDense(
                "abc,dc->abd", (4, 5), "tanh", bias_axes="d", lora_rank=2
            ),
            layers.EinsumDense("...bc,dbc->...bd", (4, 3), lora_rank=2),
            layers.EinsumDense("abc,dc->abdc", (4, 2, 3), lora_rank=1),
        ],
    ),
    "attention": (
        (4, 6),
        lambda: [SelfAttention(), layers.Dense(3)],
    ),
    "conv": (
        (7, 8, 3),
        lambda: [
            layers.Conv2D(4, 3, strides=2, activation="tanh", lora_rank=2),
            layers.Conv2D(3, 2, padding="same", use_bias=False, lora_rank=1),
        ],
    ),
    "causal conv": (
        (9, 3),
        lambda: [
            layers.Conv1D(4, 2, dilation_rate=2, padding="causal", lora_rank=2)
        ],
    ),
}


class SelfAttention(layers.Layer):
    """Attention whose query and value have adapters, as KerasHub sets them."""

    def build(self, shape):
        self.attention = layers.MultiHeadAttention(2, 3)
        self.attention.build(shape, shape)
        self.attention.trainable = False
        for part in (self.attention.query_dense, self.attention.value_dense):
            part.trainable = True
            part.enable_lora(2)

    def call(self, x):
        return x + self.attention(x, x)


def with_random_weights(make):
    """Returns `make` with weights that are equal in each model."""
    weights = [RNG.normal(size=v.shape) / 2 for v in make().weights]

    def made():
        model = make()
        model.set_weights(weights)
        return model

    return made


def adapted(case):
    shape, make_layers = ADAPTED[case]

    def make():
        model = keras.Sequential([keras.Input(shape), *make_layers()])
        model.compile(loss="mse")
        return model

    x = RNG.normal(size=(EXAMPLES, *shape)).astype("float32")
    y = RNG.normal(size=(EXAMPLES, *make().output_shape[1:])).astype("float32")
    return with_random_weights(make), x, y


@pytest.mark.parametrize("case", ADAPTED)
def test_second_moments_of_adapters_equal_a_loop(case):
    check(*adapted(case), fallback=False)


def test_second_moments_of_an_adapted_embedding_equal_a_loop():
    def make():
        model = keras.Sequential(
            [
                keras.Input((5,), dtype="int32"),
                layers.Embedding(7, 4, lora_rank=2),
                layers.Flatten(),
                layers.Dense(3),
            ]
        )
        model.compile(loss=cross_entropy())
        return model

    x = RNG.integers(0, 7, (EXAMPLES, 5)).astype("int32")
    y = RNG.integers(0, 3, EXAMPLES)
    check(with_random_weights(make), x, y, fallback=False)


def test_an_adapter_with_frozen_bias_trains_two_factors_alone():
    layer = layers.Dense(4)
    model = keras.Sequential([keras.Input((5,)), layer])
    layer.enable_lora(2)
    layer.bias.trainable = False
    model.compile(loss="mse")
    x = RNG.normal(size=(EXAMPLES, 5)).astype("float32")
    gradients, _ = curvature.second_moments(
        model, (x, np.zeros((EXAMPLES, 4), "float32")), fallback=False
    )
    assert [tuple(g.shape) for g in gradients] == [(5, 2), (2, 4)]


def test_kronecker_factors_of_an_adapter_equal_those_of_its_two_products():
    layer = layers.Dense(5)
    model = keras.Sequential([keras.Input((4, 3)), layer])
    layer.enable_lora(2, lora_alpha=3.0)
    model.compile(loss="mse")
    model.set_weights([RNG.normal(size=v.shape) for v in model.weights])
    x = RNG.normal(size=(EXAMPLES, 4, 3)).astype("float32")
    y = RNG.normal(size=(EXAMPLES, 4, 5)).astype("float32")
    of_a, of_b = curvature.kronecker_factors(model, (x, y), fallback=False)
    assert of_a.kernel is layer.lora_kernel_a
    assert of_b.kernel is layer.lora_kernel_b
    assert of_a.bias is None and of_b.bias is None

    a, b = (np.array(v, "float64") for v in (of_a.kernel, of_b.kernel))
    dz = 2 * (np.array(model(x), "float64") - y) / (4 * 5)
    scale = 3.0 / 2

    def gram(rows):
        return np.einsum("bpi,bpj->ij", rows, rows) / EXAMPLES

    expected = [
        (gram(x), gram(scale * dz @ b.T) / 4),
        (gram(scale * x @ a), gram(dz) / 4),
    ]
    for factors, (inputs, outputs) in zip((of_a, of_b), expected, strict=True):
        np.testing.assert_allclose(factors.inputs, inputs, 1e-4, 1e-5)
        np.testing.assert_allclose(factors.outputs, outputs, 1e-4, 1e-5)


# An adapted layer, and layers that compute the same as its two products.
PRODUCTS = {
    "einsum dense": (
        (4, 6),
        lambda: layers.EinsumDense("abc,cde->abde", (4, 2, 3)),
        lambda: layers.EinsumDense("abc,cdr->abdr", (4, 2, 2)),
        lambda: layers.EinsumDense("abdr,re->abde", (4, 2, 3)),
    ),
    "conv": (
        (7, 8, 3),
        lambda: layers.Conv2D(4, 3, strides=2, use_bias=False),
        lambda: layers.Conv2D(2, 3, strides=2, use_bias=False),
        lambda: layers.Conv2D(4, 1, use_bias=False),
    ),
}


@pytest.mark.parametrize("case", PRODUCTS)
def test_kronecker_factors_of_an_adapter_equal_those_of_two_layers(case):
    shape, whole, down, up = PRODUCTS[case]
    layer, frozen, a, b = whole(), whole(), down(), up()
    model = keras.Sequential([keras.Input(shape), layer])
    layer.enable_lora(2, lora_alpha=3.0)
    weights = [RNG.normal(size=v.shape) for v in model.weights]
    model.set_weights(weights)
    inputs = keras.Input(shape)
    apart = keras.Model(inputs, frozen(inputs) + b(1.5 * a(inputs)))
    for part, weight in zip((frozen, a, b), weights, strict=True):
        part.kernel.assign(np.reshape(weight, part.kernel.shape))
    frozen.trainable = False
    x = RNG.normal(size=(EXAMPLES, *shape)).astype("float32")
    y = RNG.normal(size=(EXAMPLES, *model.output_shape[1:])).astype("float32")
    found = []
    for one in (model, apart):
        one.compile(loss="mse")
        found.append(curvature.kronecker_factors(one, (x, y), fallback=False))
    kernels = [f.kernel for f in found[0]]
    assert [id(k) for k in kernels] == [
        *(id(layer.lora_kernel_a), id(layer.lora_kernel_b))
    ]
    for ours, expected in zip(*found, strict=True):
        np.testing.assert_allclose(ours.inputs, expected.inputs, 1e-4, 1e-4)
        np.testing.assert_allclose(ours.outputs, expected.outputs, 1e-4, 1e-5)


@pytest.mark.parametrize("case", ["dense", "attention", "conv"])
def test_half_precision_of_adapters_is_nearly_as_exact(case):
    make, x, y = adapted(case)
    exact = [
        [part.numpy() for part in moments]
        for moments in curvature.second_moments(make(), (x, y))
    ]
    with dtype_policy("mixed_float16"):
        half = make()
        found = curvature.second_moments(half, (x, y))
    assert all(g.dtype == "float32" for moments in found for g in moments)
    names = [v.path for v in half.trainable_variables]
    assert_close(names, found, exact, tolerance=1e-2)


@pytest.mark.parametrize("tie_weights", [True, False])
@pytest.mark.parametrize("cap", [None, 2.0])
def test_second_moments_of_a_table_for_lookup_and_logits_equal_a_loop(
    tie_weights, cap
):
    def make():
        table = layers.ReversibleEmbedding(
            7, 4, tie_weights=tie_weights, logit_soft_cap=cap
        )
        inputs = keras.Input((5,), dtype="int32")
        hidden = layers.Dense(4, "tanh")(table(inputs))
        model = keras.Model(inputs, table(hidden, reverse=True))
        model.compile(loss=cross_entropy())
        return model

    x = RNG.integers(0, 7, (EXAMPLES, 5)).astype("int32")
    y = RNG.integers(0, 7, (EXAMPLES, 5))
    check(with_random_weights(make), x, y, fallback=False)


class Tokens(layers.Layer):
    """Owns a token and positions, and an inner layer."""

    def build(self, shape):
        self.token = self.add_weight((1, 1, 4), name="token")
        self.positions = self.add_weight((shape[1] + 1, 4), name="positions")
        self.dense = layers.Dense(4)
        self.dense.build(shape)

    def call(self, x):
        token = ops.broadcast_to(self.token, (ops.shape(x)[0], 1, 4))
        return ops.concatenate([token, self.dense(x)], 1) + self.positions


def tokens():
    model = keras.Sequential(
        [keras.Input((3, 5)), Tokens(), layers.Flatten(), layers.Dense(3)]
    )
    model.compile(loss=cross_entropy())
    return model


def test_small_layers_without_a_rule_are_differentiated_by_default():
    x = RNG.normal(size=(EXAMPLES, 3, 5)).astype("float32")
    y = RNG.integers(0, 3, EXAMPLES)
    model = tokens()
    with pytest.warns(UserWarning, match="no rule for `Tokens`, and") as told:
        curvature.second_moments(model, (x, y))
        curvature.second_moments(model, (x, y))
    assert len(told) == 1

    def make():
        made = tokens()
        made.set_weights(model.get_weights())
        return made

    with pytest.warns(UserWarning, match="no rule for `Tokens`"):
        check(make, x, y)


class Shared(layers.Layer):
    """Its second argument has no rows of examples."""

    def build(self, x_shape, table_shape):
        self.scale = self.add_weight((4,), initializer="ones")

    def call(self, x, table):
        return x * self.scale * table


def test_an_argument_with_as_many_rows_as_examples_is_refused():
    inputs = keras.Input((EXAMPLES, 4))
    table = np.ones((EXAMPLES, 4), "float32")
    model = keras.Model(inputs, Shared()(inputs, ops.array(table)))
    model.compile(loss="mse")
    x = np.ones((EXAMPLES, EXAMPLES, 4), "float32")
    with (
        pytest.warns(UserWarning, match="no rule for `Shared`"),
        pytest.raises(ValueError, match="argument 'table' with 6 rows"),
    ):
        curvature.second_moments(model, (x, x))


def test_quantised_adapters_are_refused():
    model = keras.Sequential([keras.Input((4,)), layers.Dense(3)])
    with own_garbage():  # Keras calls `gc.collect`.
        model.layers[0].quantize("int8")
    model.layers[0].enable_lora(2)
    model.compile(loss="mse")
    with pytest.raises(ValueError, match="layers that are not quantised"):
        curvature.second_moments(model, (np.ones((2, 4)), np.ones((2, 3))))


def test_recurrent_layers_are_refused_under_xla():
    model = keras.Sequential([keras.Input((4, 2)), layers.LSTM(3)])
    model.compile(loss="mse", jit_compile=True)
    with pytest.raises(ValueError, match="Pass `jit_compile=False`"):
        curvature.second_moments(model, (np.ones((2, 4, 2)), np.ones((2, 3))))


def test_large_layers_without_a_rule_are_refused(monkeypatch):
    monkeypatch.setattr("keras_bdl.curvature._capture.SMALL", 10)
    with pytest.raises(ValueError, match="`Tokens`.*with 20 weights"):
        curvature.second_moments(
            tokens(), (np.zeros((2, 3, 5), "float32"), np.zeros(2))
        )
