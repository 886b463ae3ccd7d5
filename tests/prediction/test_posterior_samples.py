import keras
import numpy as np
import pytest
import tensorflow as tf

import keras_bdl
from keras_bdl import predict
from keras_bdl._data._batches import Batches
from keras_bdl.posteriors import Ensemble
from keras_bdl.posteriors import Gaussian
from keras_bdl.posteriors import MCDropout
from keras_bdl.posteriors import Mixture
from keras_bdl.prediction import PredictOptions
from keras_bdl.prediction._posterior_samples import PosteriorDraws
from keras_bdl.prediction._posterior_samples import SampleStacks
from tests.helpers import predict_arguments

X = np.random.default_rng(0).normal(size=(22, 4)).astype("float32")
TRAIN = np.random.default_rng(1).normal(1.0, 2.0, (30, 4)).astype("float32")


def network():
    model = keras.Sequential(
        [
            keras.Input((4,)),
            keras.layers.Dense(6, activation="tanh"),
            keras.layers.Dropout(0.5),
            keras.layers.BatchNormalization(),
            keras.layers.Dense(2),
        ]
    )
    model.compile("sgd", "mse")
    return model


def gaussian(model):
    mean = [np.array(v) for v in model.trainable_variables]
    return Gaussian(mean, [np.full(m.shape, 0.3) for m in mean])


def output_with_own_statistics(weights, x, train, batch_size):
    kernel, bias, gamma, beta, last_kernel, last_bias = weights
    hidden = np.tanh(train @ kernel + bias)
    batches = np.split(hidden, range(batch_size, len(train), batch_size))
    sizes = [len(b) for b in batches]
    mean = np.average([b.mean(0) for b in batches], 0, sizes)
    variance = np.average([b.var(0) for b in batches], 0, sizes)
    z = (np.tanh(x @ kernel + bias) - mean) / np.sqrt(variance + 1e-3)
    return (z * gamma + beta) @ last_kernel + last_bias


class Reads(keras.utils.PyDataset):
    """Training data that count how often they are read."""

    num_batches = 4
    reads = 0

    def __getitem__(self, index):
        self.reads += 1
        return TRAIN[8 * index : 8 * index + 8], np.zeros(8)[: 30 - 8 * index]


def test_batch_norm_is_estimated_once_for_each_draw(monkeypatch):
    monkeypatch.setattr(Batches, "buffer_bytes", 1)
    model = network()
    model.layers[1].rate = 0.0
    posterior = gaussian(model)
    before = model.get_weights()
    train = Reads()
    p = predict(
        model,
        tf.data.Dataset.from_tensor_slices(X).batch(8),  # three chunks
        posterior,
        samples=3,
        batch_norm_data=train,
        keep_samples=True,
        verbose=0,
    )
    for sample, seed in zip(p.samples, posterior.seeds(0, 3), strict=True):
        expected = output_with_own_statistics(
            posterior.sample(seed), X, TRAIN, 8
        )
        np.testing.assert_allclose(sample, expected, 1e-3, 1e-4)
    assert train.reads == 3 * 4
    for weight, value in zip(model.get_weights(), before, strict=True):
        np.testing.assert_array_equal(weight, value)


def test_stale_batch_norm_statistics_cause_a_warning():
    model = network()
    with pytest.warns(UserWarning, match="Give training inputs as `batch_norm"):
        predict(model, X, gaussian(model), samples=2, verbose=0)
    # No warning, which would be an error here:
    predict(model, X, MCDropout(), samples=2, verbose=0)
    predict(model, X, Ensemble.from_models([model, network()]), verbose=0)
    predict(
        model, X, gaussian(model), samples=2, batch_norm_data=TRAIN, verbose=0
    )
    model.layers[2].trainable = False
    predict(model, X, gaussian(model), samples=2, verbose=0)


def test_trained_weights_can_have_new_statistics_for_one_prediction():
    model = network()
    model.layers[1].rate = 0.0
    before = model.get_weights()
    weights = [np.array(v) for v in model.trainable_variables]
    p = predict(
        model,
        X,
        batch_norm_data=TRAIN,
        options=PredictOptions(batch_norm_fraction=0.5),
        verbose=0,
    )
    expected = output_with_own_statistics(weights, X, TRAIN[::2], 32)
    np.testing.assert_allclose(p.mean, expected, 1e-3, 1e-4)
    for weight, value in zip(model.get_weights(), before, strict=True):
        np.testing.assert_array_equal(weight, value)


def test_a_posterior_that_does_not_fit_is_refused_before_any_warning():
    other = keras.Sequential([keras.Input((4,)), keras.layers.Dense(2)])
    with pytest.raises(ValueError, match="must belong to this architecture"):
        predict(network(), X, gaussian(other), samples=2, verbose=0)


def test_samples_without_a_posterior_cause_a_warning():
    with pytest.warns(
        UserWarning, match="has no posterior.*samples=30"
    ) as record:
        p = predict(network(), X, samples=30, verbose=0)
    assert record[0].filename == __file__
    assert p.num_samples == 1
    predict(network(), X, samples=1, verbose=0)


def test_statistics_come_back_after_an_error_in_the_training_data():
    model = network()
    before = model.get_weights()
    bad = TRAIN.copy()
    bad[-1] = np.nan
    data = tf.data.Dataset.from_tensor_slices(bad).batch(8)
    with pytest.raises(ValueError, match="`batch_norm_data` must not contain"):
        predict(
            model,
            X,
            gaussian(model),
            samples=2,
            batch_norm_data=data,
            verbose=0,
        )
    for weight, value in zip(model.get_weights(), before, strict=True):
        np.testing.assert_array_equal(weight, value)


def test_samples_default_to_those_of_compile_then_members_then_thirty():
    model = keras_bdl.Sequential([keras.Input((4,)), keras.layers.Dense(2)])
    model.compile("sgd", "mse", samples=5)
    ensemble = Ensemble([model.get_weights()] * 3)
    posterior = gaussian(model)
    assert predict(model, X, posterior, verbose=0).num_samples == 5
    assert predict(model, X, posterior, samples=2, verbose=0).num_samples == 2
    model.compile("sgd", "mse")
    assert predict(model, X, ensemble, verbose=0).num_samples == 3
    assert predict(model, X, posterior, verbose=0).num_samples == 30


def test_another_attribute_samples_of_a_model_has_no_effect():
    class Mine(keras.Sequential):
        samples = 7

    model = Mine([keras.Input((4,)), keras.layers.Dense(2)])
    model.compile("sgd", "mse")
    p = predict(model, X, gaussian(model), verbose=0)
    assert p.num_samples == 30


def test_samples_of_a_posterior_of_another_class_are_drawn_anew(capsys):
    class Shifted(Gaussian):
        shift = 0.0

        def sample(self, seed):
            return [w + self.shift for w in super().sample(seed)]

    model = network()
    model.layers[2].trainable = False
    mean = [np.array(v) for v in model.trainable_variables]
    posterior = Shifted(mean)
    kwargs = predict_arguments(samples=2, verbose=0, task="regression")
    first = predict(model, X, posterior, **kwargs)
    posterior.shift = 1.0
    second = predict(model, X, posterior, **kwargs)
    assert np.abs(first.mean - second.mean).max() > 0.1


def test_mixture_with_laplace_warns_that_it_is_not_linearised():
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(2)])
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile("sgd", loss)
    laplace = keras_bdl.fit_laplace(model, X, verbose=0)
    mixture = keras_bdl.posteriors.Mixture([laplace, laplace])
    with pytest.warns(UserWarning, match="A mixture is not linearised"):
        predict(model, X, mixture, samples=2, verbose=0)


@pytest.mark.parametrize("seed", range(4))
def test_stacks_of_a_mixture_keep_the_limit_if_components_vary_other_weights(
    seed,
):
    model = network()
    mean = [np.array(v) for v in model.trainable_variables]
    one = sum(m.nbytes for m in mean)
    of_bias = [None] * (len(mean) - 1) + [np.ones_like(mean[-1])]
    mixture = Mixture([Gaussian(mean, of_bias), gaussian(model)], [3, 1])
    limit = 4 * one + 200  # the statistics and the seeds of the network
    with pytest.warns(UserWarning, match="BatchNorm"):
        draws = PosteriorDraws(model, mixture, samples=24, seed=seed)
    stacks = list(SampleStacks(draws, limit))
    assert sum(map(len, stacks)) == 24
    assert max(stack.nbytes for stack in stacks) <= limit
