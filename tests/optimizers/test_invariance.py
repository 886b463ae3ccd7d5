"""Samples do not depend on batch size, replicas or steps per execution."""

import contextlib

import keras
import numpy as np
import pytest
import tensorflow as tf

import keras_bdl as bdl
from tests.helpers import assert_moment

# The data has no end, and its epochs are no passes over N examples.
# Some chains are shorter than it takes them to forget where they began.
pytestmark = [
    pytest.mark.filterwarnings("ignore:.*uses dataset_size"),
    pytest.mark.filterwarnings("ignore:.*a chain that still drifts"),
]

N, CHAINS, DIM = 200, 512, 4
RNG = np.random.default_rng(0)
# Uncorrelated, as then the noise of the minibatches is: a thermostat a weight
# takes out no more.
X = np.linalg.qr(RNG.normal(size=(N, DIM)))[0].astype("float32") * N**0.5
Y = (X @ [1.0, -2.0, 0.5, 0.5] + RNG.normal(size=N)).astype("float32")
PRECISION = X.T @ X + np.eye(DIM)
MEAN = np.linalg.solve(PRECISION, X.T @ Y)
START = MEAN + RNG.normal(size=(CHAINS, DIM)) @ np.linalg.cholesky(
    np.linalg.inv(PRECISION)
)


class Regressions(keras.layers.Layer):
    """A linear regression of its own in every row of its weights."""

    def build(self, input_shape):
        self.kernel = self.add_weight(input_shape[1:])

    def call(self, inputs):
        return keras.ops.sum(inputs * self.kernel, axis=-1)


def negative_log_likelihood(y_true, y_pred):
    return 0.5 * keras.ops.sum(keras.ops.square(y_true - y_pred), axis=-1)


def minibatches(batch_size, seed=0):
    """Independent ones, for every chain its own.

    In epochs without replacement the noise of the small batches would cancel
    over 40 steps, which is about the time that a weight remembers here: what
    the thermostats take for white noise would be less, the variance 0.81.
    """

    def batch(step):
        rows = tf.random.stateless_uniform(
            (batch_size, CHAINS), [seed, step], maxval=N, dtype=tf.int64
        )
        return tf.gather(X, rows), tf.gather(Y, rows)

    return tf.data.Dataset.counter().map(batch)


def chains(
    data, steps, every, seed=0, distribution=None, steps_per_execution=1
):
    """Draws every so many steps, by sample, chain and weight."""
    with distribution.scope() if distribution else contextlib.nullcontext():
        model = keras.Sequential([keras.Input((CHAINS, DIM)), Regressions()])
        sampler = bdl.ATMC(
            learning_rate=3e-2,
            dataset_size=N,
            average_speed=3.5e-3,
            max_speed=3.5e-3,
            friction=0.95,
            prior=bdl.priors.Normal(1.0),
            seed=seed,
        )
        model.compile(
            sampler,
            negative_log_likelihood,
            steps_per_execution=steps_per_execution,
        )
        model.set_weights([START])
    samples = bdl.callbacks.SampleCollector(every, unit="step")
    model.fit(data, steps_per_epoch=steps, verbose=0, callbacks=[samples])
    posterior = samples.posterior
    return np.stack(
        [posterior.sample(s)[0] for s in range(samples.num_collected)]
    )


def test_batch_size_does_not_change_mean_and_variance():
    # The noise of the small batches nearly doubles the variance under SGHMC.
    means, errors = [], []
    for seed, batch_size in enumerate((5, 25)):
        data = minibatches(batch_size, seed)
        draws = chains(data, 1600, 20, seed=seed, steps_per_execution=20)
        draws = (draws[20:] - MEAN) * np.sqrt(np.diag(PRECISION))
        moments = np.stack([draws, np.square(draws)]).mean(axis=1)
        # Chains are independent of each other, their draws are not.
        means.append(moments.mean(axis=1))
        errors.append(moments.std(axis=1) / np.sqrt(CHAINS))
    assert_moment((means[0] - means[1]) / np.hypot(*errors), 0.0, 1.0)


def test_two_replicas_walk_the_path_of_one(mirrored):
    data = minibatches(20)
    one = chains(data, steps=100, every=10)
    two = chains(data, steps=100, every=10, distribution=mirrored)
    np.testing.assert_allclose(two, one, atol=1e-5)


def test_steps_per_execution_does_not_change_the_path():
    data = minibatches(20)
    one = chains(data, steps=100, every=10)
    ten = chains(data, steps=100, every=10, steps_per_execution=10)
    np.testing.assert_allclose(ten, one, atol=1e-5)
