"""Networks of each kind, for conversion."""

import keras
import numpy as np
from keras import layers

from keras_bdl.layers import MCDropout
from keras_bdl.layers._variational import Variational

X = np.random.default_rng(0).normal(size=(8, 6)).astype("float32")
TOKENS = np.random.default_rng(0).integers(0, 9, (8, 5)).astype("int32")
# The kinds of conversion, with their arguments.
KINDS = {"mean_field": {}, "radial": {}, "mc_dropout": {"rate": 0.2}}


def randomized(model, seed=0):
    """Gives each weight another value."""
    rng = np.random.default_rng(seed)
    for weight in model.weights:
        weight.assign(rng.uniform(0.1, 1.0, weight.shape))
    return model


def stack(*inner, shape=(6,)):
    return randomized(keras.Sequential([keras.Input(shape), *inner]))


def sequential():
    return stack(
        layers.Dense(5, "relu"), layers.BatchNormalization(), layers.Dense(2)
    )


@keras.saving.register_keras_serializable("test_convert")
class Block(layers.Layer):
    """A layer whose `__init__` makes inner layers, in many places."""

    def __init__(self, units, **kwargs):
        super().__init__(**kwargs)
        self.units = units
        self.first = self.same = layers.Dense(units)
        self.listed = [layers.Dense(units)]
        self.named = {"norm": layers.BatchNormalization()}
        self.pair = (layers.Dense(units), layers.Dropout(0.1))

    def call(self, x):
        y = self.named["norm"](self.listed[0](self.first(x)))
        return x + self.same(self.pair[1](self.pair[0](y)))

    def get_config(self):
        return {**super().get_config(), "units": self.units}


@keras.saving.register_keras_serializable("test_convert")
class LateBlock(layers.Layer):
    """A layer whose `build` makes inner layers."""

    def build(self, shape):
        self.dense = layers.Dense(shape[-1])
        self.dense.build(shape)

    def call(self, x):
        return self.dense(x)


@keras.saving.register_keras_serializable("test_convert")
class Net(keras.Model):
    """A model whose `call` lacks the argument `training`."""

    def __init__(self, width, **kwargs):
        super().__init__(**kwargs)
        self.width = width
        self.blocks = [Block(6), LateBlock()]
        self.stack = keras.Sequential([layers.Dense(width), Block(width)])
        self.attention = layers.MultiHeadAttention(2, 3)
        self.head = layers.Dense(2)

    def call(self, x):
        for block in self.blocks:
            x = block(x)
        x = self.stack(x)[:, None]
        return self.head(self.attention(x, x)[:, 0])

    def get_config(self):
        return {**super().get_config(), "width": self.width}


def subclassed():
    model = Net(4)
    model(X)
    return randomized(model)


def functional():
    """Returns a model with two inputs and outputs, and shared layers."""
    shared = layers.Dense(6, name="shared")
    inner_input = keras.Input((6,))
    inner_output = keras.ops.relu(layers.Dense(6)(inner_input)) + inner_input
    inner = keras.Model(inner_input, inner_output, name="inner")
    a, b = keras.Input((6,), name="a"), keras.Input((6,), name="b")
    x = layers.Concatenate()([shared(inner(a)), shared(b), inner(b)])
    outputs = {
        "label": layers.Dense(2, name="label")(x),
        "value": Block(18, name="value")(x),
    }
    return randomized(keras.Model({"a": a, "b": b}, outputs))


def transformer():
    inputs = keras.Input((5,), dtype="int32")
    x = layers.Embedding(9, 8, mask_zero=True, name="tokens")(inputs)
    x = layers.LayerNormalization()(layers.MultiHeadAttention(2, 4)(x, x) + x)
    x = layers.GlobalAveragePooling1D()(x)
    return randomized(keras.Model(inputs, layers.Dense(2)(x)))


def values(model):
    return [np.array(w) for w in model.weights]


def bayesian_layers(model):
    return [
        layer
        for layer in model._flatten_layers()
        if isinstance(layer, (MCDropout, Variational))
    ]


def assert_same_outputs(a, b, x):
    flat = [keras.tree.flatten(model(x, training=False)) for model in (a, b)]
    for u, v in zip(*flat, strict=True):
        np.testing.assert_allclose(u, v, rtol=1e-5, atol=1e-5)


def reloaded(model, tmp_path):
    model.save(tmp_path / "model.keras")
    return keras.models.load_model(tmp_path / "model.keras")
