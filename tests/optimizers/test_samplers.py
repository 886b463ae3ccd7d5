import keras
import numpy as np
import pytest
import tensorflow as tf

import keras_bdl as bdl
from keras_bdl._random._noise import normal_numbers
from keras_bdl._random._noise import sampler_bits
from keras_bdl.optimizers import ATMC
from keras_bdl.optimizers import SGHMC
from keras_bdl.optimizers import SGLD
from keras_bdl.optimizers import SGNHT
from keras_bdl.optimizers import _momentum_samplers as momentum_samplers
from keras_bdl.optimizers._momentum_samplers import kick
from tests.helpers import assert_moment

N, CHAINS = 10, 4096
PRECISIONS = np.array([1.0, 4.0], "float32")
STEP = 0.05
SAMPLERS = {"ATMC": ATMC, "SGNHT": SGNHT, "SGHMC": SGHMC}


def unit_sampler(cls, max_speed=None, **kwargs):
    """A sampler whose mass, speed limit and friction are 1."""
    return cls(
        learning_rate=STEP,
        **{"dataset_size": N, "prior": None, **kwargs},
        average_speed=STEP,
        max_speed=max_speed and max_speed * STEP,
        friction=float(np.exp(-STEP)),
    )


def sample(optimizer, steps, energy_gradient, start=0.0):
    """Runs many chains, as one variable with a column for each."""
    w = keras.Variable(np.full((2, CHAINS), start, "float32"))
    optimizer.build([w])

    @tf.function
    def run():
        for i in tf.range(steps):
            gradient = energy_gradient(w.value, i)
            optimizer.apply([gradient / optimizer.dataset_size.value()], [w])

    run()
    return w.numpy()


def quadratic(w, step):
    return PRECISIONS[:, None] * w


def assert_variances(w, variances):
    for row, variance in zip(w, variances, strict=True):
        assert_moment(row.mean(), 0.0, np.sqrt(variance / CHAINS))
        assert_moment(row.var(), variance, variance * np.sqrt(2 / CHAINS))


def test_sampler_without_thermostat_has_the_right_moments():
    w = sample(unit_sampler(SGHMC, 1.0), 1000, quadratic)
    assert_variances(w, 1 / PRECISIONS)


def test_thermostat_of_the_printed_algorithm_is_caught(monkeypatch):
    def printed(momentum, mass, max_speed, temperature):
        return momentum**2 / mass - temperature

    monkeypatch.setattr(momentum_samplers, "thermostat_force", printed)
    w = sample(unit_sampler(ATMC, 1.0), 1000, quadratic)
    with pytest.raises(AssertionError):
        assert_variances(w, 1 / PRECISIONS)
    assert 0.45 < w[0].var() < 0.6  # 0.53 of the truth, on a unit Gaussian


def test_coarse_step_has_the_variance_of_its_own_recursion():
    # On a unit Gaussian and without a thermostat the step is linear,
    #   (p, w) -> (e p - c w + noise, w + h p_new),
    # so its stationary covariance follows from a recursion of matrices.
    h = 0.8
    e, c = np.exp(-h), 1 - np.exp(-h)
    step = np.array([[e, -c], [h * e, 1 - h * c]])
    noise = (1 - e**2) * np.outer([1.0, h], [1.0, h])
    covariance = np.zeros((2, 2))
    for _ in range(200):
        covariance = step @ covariance @ step.T + noise
    variance = covariance[1, 1]
    assert variance > 1.2  # far from the target, so that this shows something

    optimizer = SGHMC(
        h,
        N,
        average_speed=h,
        max_speed=None,
        friction=float(np.exp(-h)),
        prior=None,
    )
    w = sample(optimizer, 100, lambda w, step: w)
    assert_variances(w, [variance, variance])


def test_temperature_and_data_size_scale_the_variance():
    cold = sample(unit_sampler(ATMC, temperature=0.25), 1000, quadratic)
    assert_variances(cold, 0.25 / PRECISIONS)

    def mean_loss_gradient(w, step):
        return 10 * N * PRECISIONS[:, None] * w

    many = SGHMC(
        STEP / 10,
        10 * N,
        average_speed=STEP / 10,
        max_speed=None,
        friction=float(np.exp(-STEP)),
        prior=None,
    )
    w = sample(many, 1000, mean_loss_gradient)
    assert_variances(w, 1 / PRECISIONS / (10 * N))


def test_zero_temperature_is_descent_without_noise():
    w = sample(unit_sampler(ATMC, 1.0, temperature=0.0), 2000, quadratic, 1.0)
    assert np.ptp(w, axis=1).max() == 0.0
    assert np.abs(w).max() < 1e-3


def test_with_a_flat_likelihood_samples_follow_the_prior():
    from tensorflow_probability import distributions as tfd

    optimizer = unit_sampler(SGNHT, prior=tfd.Normal(1.0, 0.5))
    w = sample(optimizer, 1000, lambda w, step: tf.zeros_like(w), 1.0)
    assert_variances(w - 1.0, [0.25, 0.25])


@pytest.mark.parametrize("temperature", [1.0, 0.1])
def test_sgld_has_its_stationary_variance(temperature):
    rate = 0.3
    optimizer = SGLD(rate, N, temperature=temperature, prior=None)
    loss_gradient = quadratic
    w = sample(optimizer, 100, lambda w, i: N * loss_gradient(w, i))
    variance = temperature / (N * PRECISIONS * (1 - rate * PRECISIONS / 2))
    assert_variances(w, variance)


def numpy_step(w, p, xi, gradient, eta, h, m, c, d, temperature, adaptive):
    """`methods.md` (A3) in float64, and the trapezoid of the friction."""
    q = p**2 / (m * c) ** 2 + 1
    alpha = np.maximum(d - xi, 0) if adaptive else d
    b = (alpha + xi) / np.sqrt(q)
    p = (
        np.exp(-b * h) * p
        - (1 - np.exp(-b * h)) / b * gradient
        + np.sqrt(temperature * alpha * m * (1 - np.exp(-2 * b * h)) / b) * eta
    )
    q = p**2 / (m * c) ** 2 + 1
    p = p * np.exp(h / 2 * (b - (alpha + xi) / np.sqrt(q)))
    q = p**2 / (m * c) ** 2 + 1
    w = w + h * p / (m * np.sqrt(q))
    xi = xi + h * ((p**2 / m) / q - temperature * q**-1.5)
    return w, p, xi


@pytest.mark.parametrize("name", ["ATMC", "SGNHT"])
def test_steps_equal_the_equations_under_a_schedule(name):
    h0, steps = 1e-3, 4
    schedule = keras.optimizers.schedules.PiecewiseConstantDecay(
        [1], [h0, h0 / 2]
    )
    optimizer = SAMPLERS[name](
        schedule,
        N,
        temperature=0.5,
        average_speed=3e-4,
        max_speed=1e-3,
        seed=3,
        prior=None,
    )
    w = keras.Variable(np.linspace(-1, 1, 7).astype("float32"))
    gradient = np.linspace(3, -2, 7)
    expected = (w.numpy().astype("float64"), np.zeros(7), np.zeros(7))
    for step in range(steps):
        optimizer.build([w])
        eta = normal_numbers(optimizer.random_bits(w)).numpy().astype("float64")
        optimizer.apply([tf.constant(gradient / N, "float32")], [w])
        expected = numpy_step(
            *expected,
            gradient,
            eta,
            h=h0 if step <= 1 else h0 / 2,
            m=(3e-4 / h0) ** -2,
            c=1e-3 / h0,
            d=-np.log(0.9) / h0,
            temperature=0.5,
            adaptive=name == "ATMC",
        )
    got = (w, optimizer._momenta[0], optimizer._thermostats[0])
    for a, b in zip(got, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-5, atol=1e-7)


def test_kick_is_finite_and_continuous_at_zero_friction():
    h = 0.1
    frictions = np.array([-10.0, -1e-3, -1e-6, 0.0, 1e-6, 1e-3, 10.0])
    with np.errstate(invalid="ignore"):
        lost = -np.expm1(-frictions * h)
        average = np.where(frictions == 0, h, lost / frictions)
    ones = np.ones(7)
    expected = (1 - lost) - average + np.sqrt(average * (2 - lost))
    momentum = kick(
        ones, ones, ones, step=h, mass=1.0, max_speed=None, injected=1.0,
        friction=frictions, temperature=1.0,
    )  # fmt: skip
    np.testing.assert_allclose(momentum, expected, rtol=1e-6)


def test_atmc_adds_the_missing_friction_and_sgnht_all_friction():
    d = -np.log(0.9) / 1e-3
    thermostat = np.array([-2 * d, 0.0, d / 2, 3 * d], "float32")
    added = ATMC(1e-3).injected_friction(thermostat)
    np.testing.assert_allclose(added, [3 * d, d, d / 2, 0], rtol=1e-6)
    assert SGNHT(1e-3).injected_friction(thermostat) == pytest.approx(d)


def test_variables_and_steps_get_different_noise():
    a, b = keras.Variable(np.zeros(1000)), keras.Variable(np.zeros(1000))
    optimizer = SGLD(1.0, dataset_size=1, prior=None)
    zero = tf.zeros(1000)
    optimizer.apply([zero, zero], [a, b])
    first = a.numpy()
    assert abs(np.corrcoef(first, b)[0, 1]) < 5 / np.sqrt(1000)
    optimizer.apply([zero, zero], [a, b])
    assert abs(np.corrcoef(first, a.numpy() - first)[0, 1]) < 5 / np.sqrt(1000)


X = np.random.default_rng(0).normal(size=(12, 3)).astype("float32")


def make(optimizer, model_class=keras.Sequential):
    keras.utils.set_random_seed(1)
    model = model_class([keras.Input((3,)), keras.layers.Dense(2)])
    model.compile(optimizer, "mse")
    return model


def test_config_keeps_the_initial_step_size_and_not_the_count():
    optimizer = ATMC(1e-3, seed=4, temperature=0.5, max_speed=None)
    optimizer.learning_rate = 5e-4
    optimizer.dataset_size.count(50)
    revived = keras.saving.deserialize_keras_object(
        keras.saving.serialize_keras_object(optimizer)
    )
    assert revived.get_config() == optimizer.get_config()
    assert revived.initial_learning_rate == pytest.approx(1e-3)
    assert revived.dataset_size.given is None
    assert (revived.seed, revived.temperature) == (4, 0.5)


def test_default_speed_is_a_number_over_the_square_root_of_n():
    given = ATMC(1e-3, 10_000, average_speed=1.5e-3, max_speed=5e-3)
    ours = ATMC(1e-3, 10_000)
    for sampler in (given, ours):
        sampler.build([keras.Variable([0.0])])
    found = [float(x) for x in ours.mass_and_limit(0)]
    assert found == pytest.approx(given.mass_and_limit(0))
    assert ours.rest_energy == pytest.approx(given.rest_energy)


def test_default_steps_follow_the_mean_loss_whatever_its_number_of_examples():
    weights = []
    for size in (100, 1600):
        w = keras.Variable([1.0, -2.0])
        optimizer = SGHMC(
            1e-3, size, temperature=0.0, max_speed=None, prior=None
        )
        optimizer.build([w])
        for _ in range(3):
            optimizer.apply([w.value], [w])
        weights.append(w.numpy())
    np.testing.assert_allclose(*weights, rtol=1e-5)
    assert abs(weights[0][0] - 1.0) > 1e-4


def test_our_model_counts_n_and_a_keras_model_asks_for_it():
    model = make(ATMC(1e-3), bdl.Sequential)
    model.fit(X, X[:, :2], verbose=0)
    assert model.optimizer.dataset_size.counted == 12
    with pytest.raises(ValueError, match=r"ATMC\(..., dataset_size="):
        make(ATMC(1e-3)).fit(X, X[:, :2], verbose=0)


def test_noise_is_a_function_of_seed_and_step_with_and_without_xla():
    def draw(seed, step):
        bits = sampler_bits((5000,), seed=seed, index=1, step=step)
        return bits, normal_numbers(bits)

    plain = tf.function(draw)
    bits, first = plain(3, tf.constant(7))
    compiled = tf.function(draw, jit_compile=True)(3, tf.constant(7))
    np.testing.assert_array_equal(compiled[0], bits)
    np.testing.assert_allclose(compiled[1], first, rtol=1e-5)
    np.testing.assert_array_equal(plain(3, tf.constant(7))[0], bits)
    for seed, step in ((4, 7), (3, 8)):
        other = plain(seed, tf.constant(step))[1]
        assert abs(np.corrcoef(first, other)[0, 1]) < 5 / np.sqrt(5000)


def test_prior_does_not_apply_to_variables_with_a_regularizer():
    w = [keras.Variable(np.ones(3)) for _ in range(2)]
    w[0].regularizer = keras.regularizers.L2(1e-9)
    sampler = SGLD(0.5, 1, temperature=0.0, prior=bdl.priors.Normal(1.0))
    sampler.apply([tf.zeros(3)] * 2, w)
    np.testing.assert_array_equal(w[0], np.ones(3))
    np.testing.assert_allclose(w[1], np.full(3, 0.5))


def test_temperature_follows_its_schedule():
    ramp = bdl.schedules.LinearRamp(0.0, 1.0, end_step=2, start_step=1)
    sampler = SGLD(0.5, 1, temperature=ramp, prior=None)
    w = keras.Variable(np.zeros(4000))
    spreads = []
    for _ in range(3):
        before = w.numpy()
        sampler.apply([tf.zeros(4000)], [w])
        spreads.append((w.numpy() - before).std())
    np.testing.assert_allclose(spreads, [0, 0, 1], atol=5 / np.sqrt(8000))


def test_variable_without_a_gradient_is_refused():
    w = keras.Variable(np.zeros(3))
    with pytest.raises(ValueError, match="have a gradient"):
        SGLD(dataset_size=12).apply([None], [w])


def test_error_of_a_wrong_friction_names_its_bounds():
    with pytest.raises(
        ValueError, match="`friction` must be a number above 0.0 and below 1"
    ):
        ATMC(friction=1.0)
