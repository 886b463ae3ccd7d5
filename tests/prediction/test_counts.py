"""Predictions of a network that was trained with the Poisson loss of Keras."""

import keras
import numpy as np
import pytest
from scipy.stats import lognorm

import keras_bdl as bdl

RNG = np.random.default_rng(0)
X = RNG.normal(size=(60, 2)).astype("float32")
WEIGHTS = np.array([[0.4, -0.3], [0.2, 0.5]], "float32")
Y = RNG.poisson(np.exp(X @ WEIGHTS + 1.0)).astype("float32")


def network():
    layer = keras.layers.Dense(2, activation="exponential")
    model = keras.Sequential([keras.Input((2,)), layer])
    model.compile("adam", "poisson")
    model.set_weights([WEIGHTS, np.ones(2, "float32")])
    return model


def test_variance_of_counts_is_their_mean():
    prediction = bdl.predict(network(), X, verbose=0)
    rates = np.exp(X @ WEIGHTS + 1.0)
    np.testing.assert_allclose(prediction.variance, rates, rtol=1e-5)
    draws = RNG.poisson(rates, size=(20_000, *rates.shape))
    error = 5 * np.sqrt((rates + 3 * rates**2) / len(draws))
    assert (np.abs(draws.var(0) - prediction.stddev**2) < error).all()


def test_total_variance_adds_the_rates_of_all_samples():
    model = network()
    samples = [
        [WEIGHTS + 0.1 * RNG.normal(size=(2, 2)), np.ones(2)] for _ in range(5)
    ]
    ensemble = bdl.posteriors.Ensemble(samples)
    prediction = bdl.predict(model, X, ensemble, verbose=0)
    rates = np.stack([np.exp(X @ w + b) for w, b in samples])
    expected = rates.mean(0) + rates.var(0)
    np.testing.assert_allclose(prediction.variance, expected, rtol=1e-4)


@pytest.fixture(scope="module")
def laplace():
    model = network()
    options = {"subset": "all", "prior_precision": 1.0, "verbose": 0}
    return model, bdl.fit_laplace(model, (X, Y), refinements=0, **options)


def test_rate_of_the_linearised_network_is_lognormal(laplace):
    """The log of the rate is linear in the weights, which are Gaussian."""
    model, posterior = laplace
    draws = np.stack(
        [
            np.log(np.exp(X @ w + b))
            for w, b in (posterior.sample(seed) for seed in range(4000))
        ]
    )
    scale = draws.std(0)
    law = lognorm(s=scale, scale=np.exp(X @ WEIGHTS + 1.0))
    exact = bdl.predict(
        model,
        X,
        posterior,
        options=bdl.prediction.PredictOptions(link="identity"),
        verbose=0,
    )
    error = 5 / np.sqrt(2 * len(draws))
    np.testing.assert_allclose(exact.mean, law.mean(), rtol=error * 0.1)
    np.testing.assert_allclose(
        exact.variance_between, law.var(), rtol=2.2 * error
    )
    np.testing.assert_allclose(exact.variance_within, exact.mean, rtol=1e-5)
    drawn = bdl.predict(model, X, posterior, samples=4000, verbose=0)
    stderr = 5 * law.std() / np.sqrt(4000)
    assert (np.abs(drawn.mean - law.mean()) < stderr + 1e-3).all()


def test_a_saved_predictive_keeps_the_noise_of_counts(tmp_path, laplace):
    model, posterior = laplace
    predictive = bdl.PosteriorPredictive(
        model, posterior, samples=4, outputs=("variance", "variance_within")
    )
    path = tmp_path / "counts.keras"
    predictive.save(path)
    found = keras.models.load_model(path)(X)
    expected = predictive(X)
    for name, value in expected.items():
        np.testing.assert_array_equal(found[name], value)
    assert (np.asarray(found["variance_within"]) > 0).all()


def test_a_negative_rate_is_refused():
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    model.compile("adam", "poisson")
    with pytest.raises(ValueError, match="positive, as after `softplus`"):
        bdl.predict(model, X, verbose=0)
