import keras
import numpy as np
import pytest
from keras import layers

import keras_bdl
from keras_bdl.posteriors import MCDropout
from keras_bdl.posteriors._mc_dropout import dropout_is_on
from tests.helpers import assert_equal
from tests.posteriors.networks import network
from tests.posteriors.networks import values

X = np.ones((8, 2), "float32")


def predict(model, seed, x=X, **kwargs):
    with MCDropout().sampled(model, seed):
        return model.predict(x, verbose=0, **kwargs)


def test_dropout_is_on_and_nothing_else():
    x = np.ones((2000, 1), "float32")
    dropped = keras.Sequential(
        [
            keras.Input((1,)),
            layers.GaussianNoise(1.0),
            layers.BatchNormalization(epsilon=0.0),
            layers.Dropout(0.25, seed=1),
        ]
    )
    before = values(dropped.variables)
    outside = dropped.predict(x, verbose=0)
    inside = predict(dropped, 0, x)
    np.testing.assert_array_equal(outside, x)
    np.testing.assert_allclose(np.unique(inside), [0.0, 4 / 3], rtol=1e-6)
    kept = np.mean(inside > 0)
    assert abs(kept - 0.75) < 5 * np.sqrt(0.75 * 0.25 / len(x))
    np.testing.assert_array_equal(dropped.predict(x, verbose=0), outside)
    assert_equal(values(dropped.variables), before)


def test_masks_are_a_function_of_the_seed():
    model = network(units=32)
    first, other, again = (predict(model, seed) for seed in (1, 2, 1))
    np.testing.assert_array_equal(first, again)
    assert np.abs(first - other).min() > 0


def test_masks_of_a_batch_depend_on_its_number_alone():
    model = network(units=32)
    posterior = MCDropout()
    with posterior.drawing(model) as draw:
        draw(1)
        start = model.predict_on_batch(X)
        in_order = []
        for batch in range(3):
            posterior.position(model, 1, batch)
            in_order.append(model.predict_on_batch(X))
        draw(2)
        posterior.position(model, 1, 2)
        alone = model.predict_on_batch(X)
    np.testing.assert_array_equal(start, in_order[0])
    np.testing.assert_array_equal(alone, in_order[2])
    assert np.abs(in_order[1] - in_order[2]).min() > 0


def test_blocks_of_one_posterior_nest():
    model = network(units=32)
    posterior = MCDropout()
    with posterior.sampled(model, 1):
        outer = model.predict_on_batch(X)
        with posterior.sampled(model, 2):
            assert np.abs(model.predict_on_batch(X) - outer).min() > 0
        posterior.position(model, 1, 0)
        np.testing.assert_array_equal(model.predict_on_batch(X), outer)


def test_samples_with_dropout_share_one_trace_of_their_own():
    traces = []

    class Counted(layers.Dropout):
        def call(self, inputs, training=False):
            traces.append(training)
            return super().call(inputs, training=training)

    model = keras.Sequential([keras.Input((2,)), Counted(0.5)])
    model.compile(loss="mse")
    traces.clear()
    for seed in range(4):
        predict(model, seed)
        with MCDropout().sampled(model, seed):
            assert model.evaluate(X, X, verbose=0) > 0
        np.testing.assert_array_equal(model.predict(X, verbose=0), X)
        assert model.evaluate(X, X, verbose=0) == 0
    assert sorted(traces) == [False, False, True, True]


def test_compiling_again_forgets_both_functions():
    model = network(units=32)
    model.compile(loss="mse", jit_compile=False)
    traced = predict(model, 0)
    model.compile(loss="mse", run_eagerly=True)
    np.testing.assert_allclose(predict(model, 0), traced, rtol=1e-5)
    assert model.predict_function.keras_bdl_dropout_on is not None
    assert not hasattr(model.predict_function, "get_concrete_function")


def sequence_model(layer, shape=(4, 3)):
    x = keras.Input(shape)
    return keras.Model(x, layer(x))


def attention(layer):
    x = keras.Input((4, 3))
    return keras.Model(x, layer(x, x))


MODELS = {
    "spatial": lambda: sequence_model(layers.SpatialDropout1D(0.5)),
    "gaussian": lambda: sequence_model(layers.GaussianDropout(0.5)),
    "alpha": lambda: sequence_model(layers.AlphaDropout(0.5)),
    "wrapped": lambda: sequence_model(
        layers.TimeDistributed(layers.Dropout(0.5))
    ),
    "nested": lambda: sequence_model(keras.Sequential([layers.Dropout(0.5)])),
    "multi-head": lambda: attention(
        layers.MultiHeadAttention(2, 3, dropout=0.5)
    ),
    "attention": lambda: keras.Model(
        x := keras.Input((4, 3)), layers.Attention(dropout=0.5)([x, x])
    ),
    "lstm": lambda: sequence_model(layers.LSTM(3, dropout=0.5)),
    "gru": lambda: sequence_model(layers.GRU(3, recurrent_dropout=0.5)),
    "simple": lambda: sequence_model(layers.SimpleRNN(3, dropout=0.5)),
    "cells": lambda: sequence_model(
        layers.RNN([layers.GRUCell(3), layers.LSTMCell(3, dropout=0.5)])
    ),
    "both ways": lambda: sequence_model(
        layers.Bidirectional(layers.LSTM(3, dropout=0.5))
    ),
    "convolution": lambda: sequence_model(
        layers.ConvLSTM1D(3, 2, dropout=0.5), (4, 5, 2)
    ),
}


@pytest.mark.parametrize("kind", MODELS)
def test_every_kind_of_dropout_is_switched(kind):
    model = MODELS[kind]()
    model.run_eagerly = True  # nothing to trace: quick
    x = np.random.default_rng(0).standard_normal((2, *model.input_shape[1:]))
    outside = model.predict(x, verbose=0)
    before = values(model.variables)
    first, other, again = (predict(model, s, x) for s in (1, 2, 1))
    np.testing.assert_array_equal(first, again)
    assert not np.allclose(first, other)
    assert not np.allclose(first, outside)
    assert_equal(values(model.variables), before)
    np.testing.assert_array_equal(model.predict(x, verbose=0), outside)


def test_layers_are_what_they_were_after_an_error():
    model = network()
    before = values(model.variables)
    with pytest.raises(KeyError):
        with MCDropout().sampled(model, 0):
            assert dropout_is_on(model)
            raise KeyError
    assert not dropout_is_on(model)
    assert not any("call" in vars(layer) for layer in model.layers)
    assert_equal(values(model.variables), before)


def test_replicas_predict_with_dropout(mirrored):
    with mirrored.scope():
        model = network(units=32)
        model.compile()
    outside = model.predict(X, verbose=0)
    inside = predict(model, 0)
    assert inside.shape == outside.shape
    assert np.abs(inside - outside).min() > 0
    np.testing.assert_array_equal(inside, predict(model, 0))


@pytest.mark.parametrize("rate", [None, 0.0])
def test_a_model_without_dropout_is_refused(rate):
    added = [] if rate is None else [layers.Dropout(rate)]
    model = keras.Sequential([keras.Input((2,)), layers.Dense(1), *added])
    with pytest.raises(ValueError, match="must have a dropout layer"):
        MCDropout().check(model)


def test_dropout_that_cannot_be_switched_is_refused():
    class OwnDropout(layers.Layer):
        rate = 0.5

        def call(self, x):
            return keras.random.dropout(x, self.rate)

    model = keras.Sequential([network(), OwnDropout(name="odd")])
    model.build((None, 2))
    with pytest.raises(ValueError, match="layer='odd' of type OwnDropout"):
        MCDropout().check(model)


def test_a_model_need_not_be_compiled():
    inputs = keras.Input((2,))
    outputs = layers.Dropout(0.5, seed=1)(inputs)
    model = keras_bdl.Model(inputs, outputs)
    prediction = keras_bdl.predict(
        model,
        X,
        MCDropout(),
        samples=2,
        options=keras_bdl.prediction.PredictOptions(task="regression"),
        verbose=0,
    )
    assert prediction.variance_between.max() > 0
