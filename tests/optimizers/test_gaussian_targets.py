"""Stationary moments on a correlated Gaussian, from minibatches with noise."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_bdl.optimizers import ATMC
from keras_bdl.optimizers import SGHMC
from keras_bdl.optimizers import SGNHT
from tests.helpers import assert_moment

N, BATCH, CHAINS = 16, 2, 4096
PRECISIONS = np.array([1.0, 5.0, 25.0, 100.0])
RNG = np.random.default_rng(0)
AXES = np.linalg.qr(RNG.normal(size=(4, 4)))[0]
MEAN = np.array([1.0, -2.0, 0.5, 3.0])

# U(w) = sum_i (w - x_i)' (A / N) (w - x_i) / 2: a Gaussian of precision A and
# mean MEAN. The noise of its minibatches is the same for every w. Here it is
# also uncorrelated between the weights, as is the noise injected on top of it,
# since one thermostat a weight takes out no more than that.
A = AXES @ np.diag(PRECISIONS) @ AXES.T
SCORES = RNG.normal(size=(N, 4))
SCORES -= SCORES.mean(axis=0)
SCORES = 30.0 * SCORES @ np.linalg.inv(np.linalg.cholesky(np.cov(SCORES.T))).T
X = MEAN + SCORES @ np.linalg.inv(A)
INJECTED = np.array([0.0, 10.0, 20.0, 30.0])

STEP, AVERAGE_SPEED, STEPS = 0.05, 0.01, 2000


def loss_gradient(w, step):
    """Of the mean loss over a minibatch of its own for every chain."""
    rows = tf.random.stateless_uniform(
        (BATCH, CHAINS), [step, 1], maxval=N, dtype=tf.int32
    )
    batch = tf.gather(tf.constant(X, "float32"), rows)
    centre = tf.transpose(tf.reduce_mean(batch, axis=0))
    noise = tf.random.stateless_normal(w.shape, [step, 2])
    return (
        tf.constant(A / N, "float32") @ (w - centre)
        + tf.constant(INJECTED / N, "float32")[:, None] * noise
    )


def whitened_samples(cls, max_speed, steps=STEPS):
    """Chains that start in the posterior, as standard normals if they stay."""
    start = AXES @ (RNG.normal(size=(4, CHAINS)) / np.sqrt(PRECISIONS)[:, None])
    w = keras.Variable((MEAN[:, None] + start).astype("float32"))
    sampler = cls(
        STEP, N, AVERAGE_SPEED, max_speed, friction=float(np.exp(-STEP))
    )
    sampler.build([w])

    @tf.function(jit_compile=True)
    def run():
        for step in tf.range(steps):
            sampler.apply([loss_gradient(w.value, step)], [w])

    run()
    return np.sqrt(PRECISIONS)[:, None] * (
        AXES.T @ (w.numpy() - MEAN[:, None])
    )


def assert_moments(z, covariance):
    variances = np.diag(covariance)
    assert_moment(z.mean(axis=1) / np.sqrt(variances), 0.0, CHAINS**-0.5)
    stderr = np.sqrt(
        (np.outer(variances, variances) + covariance**2) / CHAINS
    )
    assert_moment((np.cov(z) - covariance) / stderr, 0.0, 1.0)


@pytest.mark.parametrize("max_speed", [None, AVERAGE_SPEED])
@pytest.mark.parametrize("cls", [ATMC, SGNHT])
def test_mean_and_covariance_are_those_of_the_target(cls, max_speed):
    assert_moments(whitened_samples(cls, max_speed), np.eye(4))


def test_without_a_thermostat_noise_heats_as_the_recursion_of_matrices_says():
    # p <- e p - c G + noise, w <- w + (h / m) p, with G of variance V.
    mass = (STEP / AVERAGE_SPEED) ** 2
    e, c = np.exp(-STEP), 1 - np.exp(-STEP)
    injected = mass * (1 - e**2) * np.eye(4)
    minibatches = 30.0**2 * (N - 1) / N / BATCH * np.eye(4)
    kick = injected + c**2 * (minibatches + np.diag(INJECTED**2))
    step = np.block(
        [
            [e * np.eye(4), -c * A],
            [STEP / mass * e * np.eye(4), np.eye(4) - STEP / mass * c * A],
        ]
    )
    reach = np.vstack([np.eye(4), STEP / mass * np.eye(4)])
    covariance = np.zeros((8, 8))
    covariance[4:, 4:] = np.linalg.inv(A)
    for _ in range(STEPS):
        covariance = step @ covariance @ step.T + reach @ kick @ reach.T
    whiten = np.sqrt(PRECISIONS)[:, None] * AXES.T
    expected = whiten @ covariance[4:, 4:] @ whiten.T
    assert np.linalg.eigvalsh(expected).min() > 1.4
    assert_moments(whitened_samples(SGHMC, None), expected)
