import keras
import numpy as np
import pytest
import tensorflow as tf

import keras_bdl as bdl
from tests.helpers import assert_moment

CHAINS, STEP = 4096, 0.05
PRECISIONS = (1.0, 100.0)


def chains(max_speed, steps, **kwargs):
    """One variable a precision, whose columns are chains."""
    optimizer = bdl.ATMC(
        STEP,
        dataset_size=1,
        average_speed=STEP,
        max_speed=max_speed and max_speed * STEP,
        friction=float(np.exp(-STEP)),
        precondition_every=40,
        prior=None,
        seed=0,
        **kwargs,
    )
    rng = np.random.default_rng(0)
    variables = [
        keras.Variable(rng.normal(size=CHAINS) / np.sqrt(p)) for p in PRECISIONS
    ]
    optimizer.build(variables)

    @tf.function(jit_compile=True)
    def run():
        for _ in tf.range(steps):
            gradients = [
                p * v.value for p, v in zip(PRECISIONS, variables, strict=True)
            ]
            optimizer.apply(gradients, variables)

    run()
    return optimizer, variables


@pytest.mark.parametrize("max_speed", [None, 1.0], ids=["gaussian", "limit"])
def test_masses_follow_the_curvature_and_keep_the_target(max_speed):
    optimizer, variables = chains(max_speed, 1200)
    for variable, precision in zip(variables, PRECISIONS, strict=True):
        error = np.sqrt(2 / CHAINS)
        assert_moment(variable.numpy().var() * precision, 1.0, error)
    # The mean square of the gradient of a Gaussian is its precision, known to
    # 5 % from 40 dependent steps of 4096 chains; their geometric mean is 1.
    masses = [float(optimizer.mass_and_limit(i)[0]) for i in range(2)]
    np.testing.assert_allclose(masses, [0.1, 10.0], rtol=0.05)


@pytest.mark.parametrize("max_speed", [None, 1.0], ids=["gaussian", "limit"])
def test_momenta_keep_their_kinetic_energy_when_masses_change(max_speed):
    optimizer = bdl.SGHMC(
        1.0,
        1,
        average_speed=1.0,
        max_speed=max_speed,
        friction=1 - 1e-7,
        temperature=0.0,
        precondition_every=1,
        precondition_end_step=1,
        prior=None,
    )
    variables = [keras.Variable(np.zeros(5)) for _ in range(2)]
    g = np.array([0.3, 2.0])
    optimizer.apply([tf.fill([5], x) for x in g.astype("float32")], variables)
    # p = -g after a step without friction, at masses and speed limit of 1.
    energy = g**2 / np.sqrt(1 + (g**2 if max_speed else 0))
    np.testing.assert_allclose(optimizer.kinetic_temperatures(), energy, 1e-5)
    masses = [float(optimizer.mass_and_limit(i)[0]) for i in range(2)]
    np.testing.assert_allclose(masses, g**2 / np.prod(g), rtol=1e-5)
    optimizer.apply([tf.zeros(5)] * 2, variables)
    np.testing.assert_allclose(optimizer.kinetic_temperatures(), energy, 1e-5)


def test_masses_of_single_weights_settle():
    # Each estimate of a mass follows the one weight that it then moves, which
    # would heat the chain if it counted the same for ever.
    optimizer = bdl.ATMC(
        STEP,
        1,
        average_speed=STEP,
        max_speed=None,
        friction=float(np.exp(-STEP)),
        precondition_every=20,
        prior=None,
    )
    rng = np.random.default_rng(0)
    start = rng.normal(size=(20, 1)).astype("float32")
    weights = [keras.Variable(w) for w in start]
    optimizer.build(weights)

    @tf.function(jit_compile=True)
    def mean_squares(steps):
        total = tf.zeros(20)
        for _ in tf.range(steps):
            optimizer.apply([w.value for w in weights], weights)
            total += tf.square(tf.concat([w.value for w in weights], 0))
        return total / tf.cast(steps, "float32")

    mean_squares(tf.constant(10_000))
    squares = mean_squares(tf.constant(20_000)).numpy()
    assert_moment(squares.mean(), 1.0, squares.std() / np.sqrt(20))


def test_masses_are_constant_from_the_end_step_on():
    stopped, _ = chains(None, 90, precondition_end_step=40)
    early, _ = chains(None, 45)
    for index in range(2):
        assert stopped.mass_and_limit(index) == early.mass_and_limit(index)
