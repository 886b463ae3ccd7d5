import keras
import numpy as np
import pytest

from keras_bdl.posteriors import Layerwise
from keras_bdl.posteriors import load
from tests.posteriors.networks import network


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
