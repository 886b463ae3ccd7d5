"""Models that `TaylorVI` cannot or should not differentiate twice."""

import warnings

import keras
import numpy as np
import pytest

import keras_bdl as bdl
from keras_bdl.objectives import SampledVI
from keras_bdl.objectives import TaylorVI
from tests.optimizers.variational import cross_entropy

RNG = np.random.default_rng(0)
X = RNG.normal(size=(6, 4, 4, 1)).astype("float32")
Y = RNG.integers(0, 3, 6)


def train(layers, objective):
    model = bdl.Sequential(
        [
            keras.Input((4, 4, 1)),
            *layers,
            keras.layers.Flatten(),
            keras.layers.Dense(3),
        ]
    )
    model.compile("sgd", cross_entropy(), objective=objective)
    model.fit(X, Y, verbose=0)
    return model


def test_piecewise_linear_activations_are_named_once():
    layers = [
        keras.layers.Conv2D(2, 3, activation="relu", name="conv"),
        keras.layers.Dense(2, activation="softplus", name="smooth"),
        keras.layers.LeakyReLU(name="leaky"),
    ]
    with pytest.warns(UserWarning, match=r"layers \['conv', 'leaky'\]"):
        model = train(layers, TaylorVI("scalar"))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.make_train_function(force=True)  # traced again
        model.fit(X, Y, verbose=0)
        train([keras.layers.ReLU()], SampledVI("scalar"))
        train([keras.layers.Activation("gelu")], TaylorVI("scalar"))


def test_operation_without_second_derivative_is_a_clear_error():
    layers = [
        keras.layers.Conv2D(2, 3, activation="softplus"),
        keras.layers.Resizing(4, 4, interpolation="bicubic"),
    ]
    with pytest.raises(ValueError, match=r"second derivative.*ResizeBicubic"):
        train(layers, TaylorVI("scalar"))
    train(layers, SampledVI("scalar"))


class Mistaken(keras.layers.Layer):
    def call(self, x, training=False):
        return {"x": x}["y"] if training else x


def test_error_of_a_layer_is_not_reported_as_a_missing_derivative():
    with pytest.raises(KeyError, match="y"):
        train([Mistaken()], TaylorVI("scalar"))


@pytest.mark.parametrize(
    "layers",
    [
        [keras.layers.Reshape((4, 4)), keras.layers.LSTM(3)],
        [
            keras.layers.Conv2DTranspose(2, 3),
            keras.layers.SeparableConv2D(2, 3, padding="same"),
            keras.layers.DepthwiseConv2D(3),
            keras.layers.MaxPooling2D(),
            keras.layers.Dropout(0.5),
        ],
    ],
    ids=["LSTM", "convolutions"],
)
def test_common_layers_can_be_differentiated_twice(layers):
    model = train(layers, TaylorVI("diagonal", 0.1))
    assert all(np.isfinite(w).all() for w in model.get_weights())
