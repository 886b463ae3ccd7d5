"""Bayesian linear regression, where fixed points are known by hand."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import keras_bdl as bdl
from keras_bdl import _backend as _shared_trace
from keras_bdl._backend import keras_compiles_nothing
from keras_bdl._random import _noise
from keras_bdl.optimizers import _natural_gradient as natural_gradient
from tests.helpers import assert_moment

N, CHAINS, DELTA = 20, 256, 3.0
RNG = np.random.default_rng(0)
X = RNG.normal(size=(N, 3)) @ np.diag([1.0, 0.7, 0.5])
X[:, 1] += 0.5 * X[:, 0]  # correlated weights
Y = X @ [1.0, -2.0, 0.5] + RNG.normal(size=N)
HESSIAN = X.T @ X / N
MEAN = np.linalg.solve(N * HESSIAN + DELTA * np.eye(3), X.T @ Y)


def negative_log_likelihood(y_true, y_pred):
    """Of unit noise, summed over the columns: each is a chain of its own."""
    return 0.5 * keras.ops.sum(keras.ops.square(y_true - y_pred), axis=-1)


def fixed_point(optimizer, steps):
    """Means and curvatures that many chains come to, on the whole data."""
    model = bdl.Sequential(
        [keras.Input((3,)), keras.layers.Dense(CHAINS, use_bias=False)]
    )
    model.compile(optimizer, negative_log_likelihood, steps_per_execution=200)
    data = tf.data.Dataset.from_tensors((X, Y[:, None])).repeat()
    model.make_train_function()
    iterator = iter(data)
    for _ in range(steps // 200):
        model.train_function(iterator)
    return (
        model.get_weights()[0].mean(1),
        np.mean(optimizer._curvatures[0], 1),
    )


def empirical_fisher(mean, variance):
    """E[h] where the weights are drawn: not the Hessian, for small data."""
    residuals = (Y - X @ mean) ** 2 + X**2 @ variance
    return (X**2 * residuals[:, None]).mean(0)


def test_vogn_converges_to_the_exact_mean_and_empirical_fisher():
    mean, s = fixed_point(
        bdl.VOGN(
            0.03,
            N,
            prior_precision=DELTA,
            beta_1=0.5,
            beta_2=0.99,
            damping=0.0,
        ),
        1200,
    )
    expected = np.ones(3)
    for _ in range(100):
        expected = empirical_fisher(MEAN, 1 / (N * expected + DELTA))
    np.testing.assert_allclose(mean, MEAN, atol=0.01)
    np.testing.assert_allclose(s, expected, rtol=0.02)
    # These would be others:
    assert (
        np.abs(expected / empirical_fisher(MEAN, np.zeros(3)) - 1).max() > 0.1
    )
    assert np.abs(expected / np.diag(HESSIAN) - 1).max() > 0.1


def test_ivon_converges_to_the_best_independent_gaussian():
    mean, h = fixed_point(
        bdl.IVON(
            0.015,
            N,
            prior_precision=DELTA,
            initial_curvature=0.1,
            beta_1=0.5,
            beta_2=0.998,
        ),
        3000,
    )
    np.testing.assert_allclose(mean, MEAN, atol=0.01)
    # Precision N h + delta: the diagonal of the exact posterior's.
    np.testing.assert_allclose(h, np.diag(HESSIAN), rtol=0.02)


def test_vogn_and_the_posterior_agree_where_the_noise_is_known_and_n_large():
    rng = np.random.default_rng(1)
    x = rng.normal(size=(20_000, 2)) * [1.0, 0.5]
    y = x @ [1.0, -1.0] + rng.normal(size=len(x))
    model = bdl.Sequential(
        [keras.Input((2,)), keras.layers.Dense(1, use_bias=False)]
    )
    model.compile(
        bdl.VOGN(
            0.05,
            rescale_learning_rate=False,
            prior_precision=1.0,
            beta_1=0.0,
            beta_2=0.9,
            damping=0.0,
        ),
        negative_log_likelihood,
    )
    model.fit(x, y, batch_size=2000, epochs=20, verbose=0)
    posterior = model.optimizer.posterior(model)
    exact = 1 / (np.sum(x**2, 0) + 1)
    variance = posterior.get_state()["variance"][0][:, 0]
    np.testing.assert_allclose(variance, exact, rtol=0.05)


def test_noisy_kfac_finds_the_exact_covariance_where_the_noise_is_known():
    rng = np.random.default_rng(1)
    x = rng.normal(size=(20_000, 2)) * [1.0, 0.5]
    x[:, 1] += 0.5 * x[:, 0]
    y = x @ [1.0, -1.0] + 2.0 + rng.normal(size=len(x))
    model = bdl.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    model.compile(
        bdl.NoisyKFAC(
            0.05,
            rescale_learning_rate=False,
            beta_1=0.0,
            beta_2=0.9,
            damping=0.0,
            prior_precision=30.0,
            curvature_every=1,
        ),
        negative_log_likelihood,
    )
    model.fit(x, y, batch_size=2000, epochs=20, verbose=0)
    (matrix,) = model.optimizer.posterior(model).matrices
    x = np.hstack([x, np.ones((len(x), 1))])
    exact = np.linalg.inv(x.T @ x + 30.0 * np.eye(3))
    covariance = (matrix.inputs * matrix.values[:, 0]) @ matrix.inputs.T
    scale = np.sqrt(np.diag(exact))
    # S, the squared residuals of 20 000 examples, is within 1 % of 1.
    np.testing.assert_allclose(
        covariance / np.outer(scale, scale),
        exact / np.outer(scale, scale),
        atol=0.05,
    )


def test_numbers_are_standard_normal_and_different_everywhere():
    def numbers(**key):
        key = {"seed": 3, "stream": 0, "draw": 0, "step": 0, **key}
        bits = _noise.random_bits(100_000, **key)
        return _noise.normal_numbers(bits).numpy()

    first = numbers()
    np.testing.assert_array_equal(first, numbers())
    for moment, value, variance in ((1, 0, 1), (2, 1, 2), (4, 3, 96)):
        stderr = np.sqrt(variance / first.size)
        assert_moment(np.mean(first**moment), value, stderr)
    for other in ({"seed": 4}, {"stream": 1}, {"draw": 1}, {"step": 1}):
        correlation = np.mean(first * numbers(**other))
        assert_moment(correlation, 0.0, 1 / np.sqrt(first.size))


@pytest.mark.skipif(
    not keras_compiles_nothing(),
    reason="Keras compiles itself",
)
@pytest.mark.parametrize("cls", [bdl.VOGN, bdl.IVON])
def test_compiled_samples_equal_uncompiled_samples(cls, monkeypatch):
    def train():
        model = bdl.Sequential(
            [keras.Input((3,)), keras.layers.Dense(CHAINS, use_bias=False)]
        )
        model.set_weights([np.zeros((3, CHAINS))])
        optimizer = cls(0.01, initial_curvature=1.0, seed=0)
        model.compile(optimizer, negative_log_likelihood)
        model.fit(X, Y[:, None], epochs=3, batch_size=N, verbose=0)
        return model.get_weights()[0]

    plain = train()
    compiled = []

    def pays(size, **kwargs):
        compiled.append(keras_compiles_nothing())
        return compiled[-1]

    monkeypatch.setattr(_shared_trace, "pays_to_compile", pays)
    monkeypatch.setattr(natural_gradient, "pays_to_compile", pays)
    np.testing.assert_allclose(train(), plain, rtol=1e-4, atol=1e-5)
    assert compiled and all(compiled)
