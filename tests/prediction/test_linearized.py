"""Linearised predictions equal `f(x, m) + J (w - m)` by brute force."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from scipy import special
from sklearn.linear_model import BayesianRidge

import keras_bdl as bdl
from keras_bdl.posteriors import Ensemble
from keras_bdl.posteriors import Gaussian
from keras_bdl.posteriors import Layerwise
from keras_bdl.posteriors import MCDropout

RNG = np.random.default_rng(0)
X = RNG.normal(size=(6, 3)).astype("float32")


def network(activation=None, units=3):
    model = keras.Sequential(
        [
            keras.Input((3,)),
            keras.layers.Dense(4, "tanh"),
            keras.layers.BatchNormalization(),
            keras.layers.Dense(units, activation),
        ]
    )
    return model


def gaussian(model, stddev=0.5):
    mean = [np.array(v) + 0.1 for v in model.trainable_variables]
    return Gaussian(mean, [np.full(m.shape, stddev**2) for m in mean])


def jacobian(model, means, of):
    """Returns `of(f)` at the means, and its Jacobian for each variable."""
    for variable, mean in zip(model.trainable_variables, means, strict=True):
        variable.assign(mean)
    with tf.GradientTape() as tape:
        outputs = of(model(X, training=False))
    variables = [v.value for v in model.trainable_variables]
    found = tape.jacobian(outputs, variables)
    shape = outputs.shape
    rows = [np.reshape(j, (*shape, -1)) for j in found]
    return outputs.numpy(), np.concatenate(rows, -1)


def log_odds(p):
    return tf.math.log(p) - tf.math.log1p(-p)


CASES = {
    "logits": (None, 3, "classification", True, tf.identity, special.softmax),
    "softmax": (
        "softmax",
        3,
        "classification",
        False,
        tf.math.log,
        special.softmax,
    ),
    "sigmoid": ("sigmoid", 1, "binary", False, log_odds, None),
    "regression": (None, 2, "regression", None, tf.identity, None),
}


@pytest.mark.filterwarnings("ignore:.*BatchNorm statistics")
@pytest.mark.parametrize("case", CASES)
def test_each_sample_is_that_of_the_jacobian(case):
    activation, units, task, from_logits, of, _ = CASES[case]
    model = network(activation, units)
    posterior = gaussian(model)
    p = bdl.predict(
        model,
        X,
        posterior,
        samples=3,
        linearized=True,
        task=task,
        from_logits=from_logits,
        keep_samples=True,
        verbose=0,
    )
    center, derivative = jacobian(model, posterior.mean(), of)
    mean = np.concatenate([np.ravel(m) for m in posterior.mean()])
    for sample, seed in zip(p.samples, posterior.seeds(0, 3), strict=True):
        w = np.concatenate([np.ravel(a) for a in posterior.sample(seed)])
        linear = center + derivative @ (w - mean)
        if task == "classification":
            linear = special.softmax(linear, axis=-1)
        elif task == "binary":
            odds = special.expit(linear)
            linear = np.concatenate([1 - odds, odds], -1)
        np.testing.assert_allclose(sample, linear, 1e-4, 1e-5)


def test_linear_regression_is_exact():
    """`BayesianRidge` has the posterior in closed form."""
    x = RNG.normal(size=(40, 3)).astype("float32")
    y = x @ [1.0, -2.0, 0.5] + 0.3 * RNG.normal(size=40)
    ridge = BayesianRidge(
        alpha_init=1 / 0.3**2, lambda_init=2.0, max_iter=1, fit_intercept=False
    )
    ridge.fit(x, y)
    loss = bdl.likelihoods.Gaussian(noise_stddev=float(ridge.alpha_**-0.5))
    model = keras.Sequential(
        [keras.Input((3,)), keras.layers.Dense(1, use_bias=False)]
    )
    model.compile("sgd", loss)
    model.set_weights([ridge.coef_[:, None]])
    posterior = bdl.fit_laplace(
        model, x, prior_precision=float(ridge.lambda_), verbose=0
    )
    p = bdl.predict(model, X, posterior, samples=4000, verbose=0)
    mean, stddev = ridge.predict(X, return_std=True)
    error = 5 * stddev / np.sqrt(4000)
    assert np.all(np.abs(p.mean[:, 0] - mean) < error)
    np.testing.assert_allclose(
        p.stddev[:, 0], stddev, rtol=5 / np.sqrt(2 * 4000)
    )


def test_variational_layers_are_linearised_around_their_means():
    model = keras.Sequential(
        [keras.Input((3,)), bdl.layers.MeanFieldDense(2, dataset_size=9)]
    )
    posterior = Layerwise(model)
    sampled, linear = (
        bdl.predict(
            model,
            X,
            posterior,
            samples=3,
            task="regression",
            linearized=linearized,
            keep_samples=True,
            verbose=0,
        ).samples
        for linearized in (False, True)
    )
    np.testing.assert_allclose(linear, sampled, 1e-5, 1e-6)


def test_laplace_is_linearised_unless_told_otherwise():
    model = network()
    model.layers[1].trainable = False
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile("sgd", loss)
    y = RNG.integers(0, 3, len(X))
    posterior = bdl.fit_laplace(model, (X, y), subset="all", verbose=0)
    default, linear, sampled = (
        bdl.predict(model, X, posterior, samples=3, verbose=0, **kwargs).mean
        for kwargs in ({}, {"linearized": True}, {"linearized": False})
    )
    np.testing.assert_array_equal(default, linear)
    assert np.abs(default - sampled).max() > 1e-3


@pytest.mark.parametrize("kind", ["ensemble", "dropout", "none"])
def test_posteriors_without_a_mean_are_refused(kind):
    model = network()
    posterior = {
        "ensemble": Ensemble.from_models([model, model]),
        "dropout": MCDropout(),
        "none": None,
    }[kind]
    with pytest.raises(ValueError, match="needs a posterior with a mean"):
        bdl.predict(
            model,
            X,
            posterior,
            linearized=True,
            task="regression",
            verbose=0,
        )
