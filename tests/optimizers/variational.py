"""A softmax regression in NumPy, to check variational optimizers with."""

import keras
import numpy as np

import keras_bdl as bdl
from keras_bdl._keras import inner_optimizer
from keras_bdl._random._noise import TRAINING
from tests.helpers import cross_entropy

RNG = np.random.default_rng(0)
X = RNG.normal(size=(12, 4)).astype("float32")
Y = RNG.integers(0, 3, 12)
START = [
    RNG.normal(size=(4, 3)).astype("float32"),
    RNG.normal(size=3).astype("float32"),
]


def softmax_regression(optimizer, layers=(), **compile):
    """A compiled model that starts at `START`."""
    model = bdl.Sequential([keras.Input((4,)), *layers, keras.layers.Dense(3)])
    model.set_weights(START)
    model.compile(optimizer, cross_entropy(), **compile)
    return model


def per_example_gradients(kernel, bias, x=X, y=Y):
    """In float64, the examples first."""
    logits = np.float64(x) @ kernel + bias
    p = np.exp(logits - logits.max(1, keepdims=True))
    error = p / p.sum(1, keepdims=True) - np.eye(3)[y]
    return [np.float64(x)[:, :, None] * error[:, None, :], error]


def noise_of_next_step(model, draws=1):
    """The `eps` of each draw, in float64, before a training step."""
    optimizer = inner_optimizer(model)
    variables = optimizer.prepare(model)
    noises = []
    for draw in range(draws):
        _, scores = optimizer.draw(variables, TRAINING, draw, scores=True)
        noises.append(
            [
                np.zeros(v.shape)
                if e is None
                else np.float64(e) * stddev(optimizer, v)
                for v, e in zip(variables, scores, strict=True)
            ]
        )
    return noises


def assert_same(actual, expected):
    """Compares lists of arrays to 1e-6 of the largest entry of each."""
    for a, e in zip(actual, expected, strict=True):
        a = keras.ops.convert_to_numpy(a)
        np.testing.assert_allclose(a, e, rtol=0, atol=1e-6 * np.abs(e).max())


def stddev(optimizer, variable):
    """Of a draw, in float64."""
    factor = np.float64(optimizer.noise_variance())
    return np.sqrt(factor / np.float64(optimizer.precision(variable)))
