"""Moments of samples on a correlated Gaussian with minibatch noise."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_bdl.optimizers import ATMC
from keras_bdl.optimizers import SGHMC
from keras_bdl.optimizers import SGNHT
from tests.helpers import assert_moment

N, BATCH, CHAINS, STEPS = 16, 2, 4096, 1200
# In one step a weight crosses up to a tenth of the narrowest direction.
STEP, AVERAGE_SPEED = 0.05, 0.01

RNG = np.random.default_rng(0)
PRECISIONS = np.array([1.0, 5.0, 25.0, 100.0])
AXES = np.linalg.qr(RNG.normal(size=(4, 4)))[0]
PRECISION = AXES @ np.diag(PRECISIONS) @ AXES.T
MEAN = np.array([1.0, -2.0, 0.5, 3.0])

# U(w) = sum_i (w - x_i)' (PRECISION / N) (w - x_i) / 2, whose minibatches have
# noise that is the same for every w. It is white here, and what is injected on
# top of it is uncorrelated: one thermostat a weight takes out no more.
NOISE = RNG.normal(size=(N, 4))
NOISE = np.linalg.qr(NOISE - NOISE.mean(axis=0))[0] * np.sqrt(N) * 30.0
X = MEAN + NOISE @ np.linalg.inv(PRECISION)
INJECTED = np.array([0.0, 10.0, 20.0, 30.0])


def loss_gradient(w, step):
    """Of the mean loss over a minibatch, another one for every chain."""
    rows = tf.random.stateless_uniform(
        (BATCH, CHAINS), [step, 1], maxval=N, dtype=tf.int32
    )
    batch = tf.gather(tf.constant(X, "float32"), rows)
    centre = tf.transpose(tf.reduce_mean(batch, axis=0))
    noise = tf.random.stateless_normal(w.shape, [step, 2])
    return (
        tf.constant(PRECISION / N, "float32") @ (w - centre)
        + tf.constant(INJECTED / N, "float32")[:, None] * noise
    )


def whitened_samples(cls, max_speed):
    """Chains that start in the posterior, as standard normals if they stay."""
    scales = np.sqrt(PRECISIONS)[:, None]
    start = np.random.default_rng(1).normal(size=(4, CHAINS)) / scales
    w = keras.Variable((MEAN[:, None] + AXES @ start).astype("float32"))
    sampler = cls(
        learning_rate=STEP,
        dataset_size=N,
        average_speed=AVERAGE_SPEED,
        max_speed=max_speed,
        friction=float(np.exp(-STEP)),
        prior=None,
    )
    sampler.build([w])

    @tf.function
    def run():
        for step in tf.range(STEPS):
            sampler.apply([loss_gradient(w.value, step)], [w])

    run()
    return scales * (AXES.T @ (w.numpy() - MEAN[:, None]))


def assert_moments(z, covariance):
    variances = np.diag(covariance)
    assert_moment(z.mean(axis=1) / np.sqrt(variances), 0.0, CHAINS**-0.5)
    stderr = np.sqrt((np.outer(variances, variances) + covariance**2) / CHAINS)
    assert_moment((np.cov(z) - covariance) / stderr, 0.0, 1.0)


@pytest.mark.parametrize(
    "max_speed", [None, AVERAGE_SPEED], ids=["gaussian", "limit"]
)
@pytest.mark.parametrize("cls", [ATMC, SGNHT])
def test_samples_have_the_mean_and_covariance_of_the_target(cls, max_speed):
    assert_moments(whitened_samples(cls, max_speed), np.eye(4))


def test_without_a_thermostat_the_covariance_follows_the_matrix_recursion():
    # p <- e p - c G + noise, w <- w + v p; nothing here is fitted.
    mass = (STEP / AVERAGE_SPEED) ** 2
    e, c, v = np.exp(-STEP), 1 - np.exp(-STEP), STEP / mass
    one = np.eye(4)
    step = np.block(
        [[e * one, -c * PRECISION], [v * e * one, one - v * c * PRECISION]]
    )
    noise = mass * (1 - e**2) * one
    noise += c**2 * (30.0**2 / BATCH * one + np.diag(INJECTED**2))
    move = np.vstack([one, v * one])
    covariance = np.zeros((8, 8))
    covariance[4:, 4:] = np.linalg.inv(PRECISION)
    for _ in range(STEPS):
        covariance = step @ covariance @ step.T + move @ noise @ move.T
    whiten = np.sqrt(PRECISIONS)[:, None] * AXES.T
    expected = whiten @ covariance[4:, 4:] @ whiten.T
    assert np.linalg.eigvalsh(expected).min() > 1.4  # hot in every direction
    assert_moments(whitened_samples(SGHMC, None), expected)
