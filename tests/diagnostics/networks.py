"""Small networks and their loss in NumPy, for tests of loss surfaces."""

import keras
import numpy as np
from scipy import special

from tests.helpers import cross_entropy

RNG = np.random.default_rng(0)
X = RNG.normal(size=(21, 3)).astype("float32")
Y = RNG.integers(0, 4, 21)
LOSS = cross_entropy()


class Count(keras.layers.Layer):
    """Counts its traces."""

    traces = 0

    def call(self, inputs):
        Count.traces += 1
        return inputs


def softmax_regression(kind=keras.Sequential, **kwargs):
    model = kind([keras.Input((3,)), Count(), keras.layers.Dense(4, **kwargs)])
    model.compile("sgd", LOSS)
    return model


def with_batch_norm(**kwargs):
    model = keras.Sequential(
        [
            keras.Input((3,)),
            keras.layers.Dense(3),
            keras.layers.BatchNormalization(),
            keras.layers.Activation("tanh"),
            keras.layers.Dense(4),
        ]
    )
    model.compile("sgd", LOSS, **kwargs)
    model.fit(X, Y, verbose=0)
    return model


def logits(weights):
    kernel, bias = weights
    return X.astype("d") @ kernel + bias


def nll(weights):
    z = logits(weights)
    return np.mean(special.logsumexp(z, 1) - z[np.arange(len(Y)), Y])


def error(weights):
    return np.mean(logits(weights).argmax(1) != Y)


def flat(arrays):
    return np.concatenate([np.ravel(np.asarray(a, "d")) for a in arrays])


def state(model):
    of = [*model.variables, *model.optimizer.variables]
    return [v.numpy().copy() for v in (*of, *model.metrics_variables)]


def assert_same(arrays, others):
    for now, then in zip(arrays, others, strict=True):
        np.testing.assert_array_equal(now, then)
