import keras
import numpy as np
import pytest
import tensorflow as tf
from tensorflow_probability import distributions as tfd

import keras_bdl as bdl
from keras_bdl.priors import Laplace
from keras_bdl.priors import Normal
from tests.helpers import assert_moment
from tests.helpers import check_config

X = np.array([[-2.0, 0.0, 0.3], [0.5, 1.0, 4.0]], "float32")
PAIRS = {
    "normal": (Normal(0.5, 0.3), tfd.Normal(0.3, 0.5)),
    "laplace": (Laplace(0.5, 0.3), tfd.Laplace(0.3, 0.5)),
}


@pytest.mark.parametrize("name", PAIRS)
def test_log_prob_equals_that_of_tfp(name):
    ours, theirs = PAIRS[name]
    np.testing.assert_allclose(
        ours.log_prob(X), theirs.log_prob(X), rtol=1e-6, atol=1e-6
    )


@pytest.mark.parametrize("name", PAIRS)
def test_draws_have_the_moments(name):
    ours, theirs = PAIRS[name]
    n = 100_000
    draws = ours.sample((n,), seed=1).numpy()
    variance = float(theirs.variance())
    kurtosis = {"normal": 3.0, "laplace": 6.0}[name]
    assert_moment(draws.mean(), 0.3, np.sqrt(variance / n))
    assert_moment(draws.var(), variance, variance * np.sqrt((kurtosis - 1) / n))


def test_config():
    check_config(Normal, stddev=0.5, mean=0.25, dataset_size=7)
    check_config(Laplace, scale=0.5, mean=0.25, dataset_size=7)


def test_regularizer_adds_the_negative_log_density_over_n():
    prior = Normal(0.5)
    model = bdl.Sequential(
        [keras.Input((3,)), keras.layers.Dense(2, kernel_regularizer=prior)]
    )
    model.compile(keras.optimizers.SGD(0.0), "mse")
    loss = model.fit(X, X[:, :2], verbose=0).history["loss"][0]
    kernel = model.layers[0].kernel.numpy()
    error = np.mean((X @ kernel - X[:, :2]) ** 2)
    log_prob = tf.reduce_sum(tfd.Normal(0.0, 0.5).log_prob(kernel))
    assert loss == pytest.approx(float(error - log_prob / 2), rel=1e-5)


def test_sampler_takes_the_prior_where_there_is_no_regularizer(tmp_path):
    # No likelihood and no noise: one step of SGLD is lr/N times the score.
    model = keras.Sequential(
        [keras.Input((3,)), keras.layers.Dense(2, bias_regularizer="l2")]
    )
    sampler = bdl.SGLD(0.5, dataset_size=4, temperature=0.0, prior=Normal(0.5))
    model.compile(sampler, "mse")
    before = model.layers[0].kernel.numpy()
    zeros = [tf.zeros(v.shape) for v in model.trainable_variables]
    model.layers[0].bias.assign([1.0, -1.0])
    sampler.apply(zeros, model.trainable_variables)
    np.testing.assert_allclose(
        model.layers[0].kernel, before - 0.5 / 4 * before / 0.25, rtol=1e-5
    )
    np.testing.assert_array_equal(model.layers[0].bias, [1.0, -1.0])
    model.save(tmp_path / "m.keras")
    loaded = keras.models.load_model(tmp_path / "m.keras")
    assert loaded.optimizer.prior.get_config() == sampler.prior.get_config()


def test_sampler_with_a_prior_that_cannot_be_saved_says_so(tmp_path):
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)])
    prior = tfd.Normal(0.0, 1.0)
    model.compile(bdl.SGLD(dataset_size=4, prior=prior), "mse")
    with pytest.raises(ValueError, match="`prior` must have `get_config`"):
        model.save(tmp_path / "m.keras")


def test_wrong_scale_is_refused():
    with pytest.raises(ValueError, match="`stddev` must be positive"):
        Normal(0.0)
    with pytest.raises(ValueError, match="`scale` must be positive"):
        Laplace(-1.0)
