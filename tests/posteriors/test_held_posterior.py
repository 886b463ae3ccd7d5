import keras
import numpy as np
import pytest

import keras_bdl as bdl
from keras_bdl.posteriors import Gaussian
from keras_bdl.posteriors import Layerwise
from keras_bdl.posteriors import load
from tests.helpers import assert_equal
from tests.posteriors.networks import network

X = np.random.default_rng(0).standard_normal((8, 2)).astype("float32")


def fitted(optimizer, layer=None, **kwargs):
    layer = layer or keras.layers.Dense(2)
    model = bdl.Sequential([keras.Input((2,)), layer])
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer, loss, **kwargs)
    model.fit(X, np.arange(8) % 2, verbose=0)
    return model


def test_optimizer_under_loss_scaling_holds_the_posterior():
    optimizer = keras.optimizers.LossScaleOptimizer(bdl.VOGN(1e-2))
    model = fitted(optimizer)
    posterior = bdl.posterior_of(model)
    expected = optimizer.inner_optimizer.posterior(model)
    assert isinstance(posterior, Gaussian) and not posterior.is_point
    assert_equal(posterior.sample(0), expected.sample(0))


def test_optimizer_that_trained_without_noise_holds_a_posterior_too():
    model = fitted(bdl.OGN(1e-2))
    assert not bdl.posterior_of(model).is_point


def test_objective_holds_the_posterior():
    objective = bdl.objectives.TaylorVI(covariance="diagonal")
    model = fitted("sgd", objective=objective)
    expected = objective.posterior(model)
    assert_equal(bdl.posterior_of(model).sample(0), expected.sample(0))


def test_variational_layers_hold_the_posterior():
    model = fitted("sgd", bdl.layers.MeanFieldDense(2))
    assert isinstance(bdl.posterior_of(model), Layerwise)


def test_model_without_a_posterior_is_refused_with_advice():
    with pytest.raises(
        ValueError, match="`model` must hold a posterior.*optimizer=SGD"
    ):
        bdl.posterior_of(fitted("sgd"))


class Noisy(keras.layers.Layer):
    """A double of a variational layer: y = w * x, w ~ N(mean, 4)."""

    def build(self, input_shape):
        self.mean = self.add_weight(shape=(), name="mean")
        self.other = self.add_weight(shape=(), name="other")

    def call(self, x):
        return x * self.mean

    def sample_weights(self, seed):
        noise = np.random.default_rng(seed).standard_normal()
        return [(self.mean, self.mean + 2.0 * noise)]


@pytest.fixture
def model():
    inner = keras.Sequential([keras.Input((1,)), Noisy()])
    return keras.Sequential([keras.Input((1,)), Noisy(), inner])


def test_draws_are_independent_of_each_other_and_between_layers(model):
    posterior = Layerwise(model)
    draws = np.array([posterior.sample(s) for s in range(1000)])
    means = np.array(posterior.mean())
    np.testing.assert_allclose(
        np.cov(draws.T), 4 * np.eye(2), atol=5 * 4 * np.sqrt(2 / 1000)
    )
    np.testing.assert_allclose(draws.mean(0), means, atol=5 * 2 / np.sqrt(1000))


def test_a_file_recognises_the_model_and_draws_with_it(model, tmp_path):
    posterior = Layerwise(model)
    posterior.save(tmp_path / "a")
    loaded = load(tmp_path / "a")
    with pytest.raises(RuntimeError, match="has no model"):
        loaded.sample(3)
    with pytest.raises(ValueError, match="covers 2 variables"):
        loaded.check(keras.Sequential([keras.Input((1,)), Noisy()]))


def test_model_without_variational_layers_is_refused():
    with pytest.raises(ValueError, match="`sample_weights"):
        Layerwise(network())
