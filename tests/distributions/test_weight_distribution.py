import keras
import numpy as np
import pytest
import tensorflow as tf
from scipy import stats
from tensorflow_probability import distributions as tfd

import keras_bdl as bdl
from keras_bdl._random import _noise as forward_pass_noise
from keras_bdl._random._noise import gaussian_noise
from keras_bdl.distributions import MeanField
from keras_bdl.distributions import Radial
from tests.helpers import assert_moment

FAMILIES = [MeanField, Radial]
DRAWS = 4000


def noise_of(family, shape, draws=DRAWS, seed=0):
    size = family.num_normals(int(np.prod(shape)))
    normals = forward_pass_noise.normal((draws, size), (seed, 1))
    return each(lambda n: family.noise(n, shape), normals)


def each(function, draws):
    return tf.function(lambda: tf.map_fn(function, draws))()


def test_noise_equals_scipy_up_to_the_largest_number():
    # The erfinv of TensorFlow is infinite for the largest number.
    last = np.array([1, 3, 5, 2**23 + 1, 2**24 - 1]) * 2.0**-24
    uniforms = np.concatenate([1 - last, last - 1]).astype("float32")
    expected = stats.norm.ppf((1 + uniforms.astype("float64")) / 2)
    np.testing.assert_allclose(gaussian_noise(uniforms), expected, rtol=1e-5)


@pytest.mark.parametrize("shape", [(1,), (3, 4), (3, 3, 2, 5)])
def test_radial_noise_has_half_normal_length_and_uniform_direction(shape):
    noise = noise_of(Radial, shape).numpy().reshape(DRAWS, -1)
    length = np.linalg.norm(noise, axis=1)
    assert stats.kstest(length, stats.halfnorm.cdf).pvalue > 1e-6
    direction = noise / length[:, None]
    size = direction.shape[1]
    assert_moment(direction.mean(0), 0.0, np.sqrt(1 / size / DRAWS))
    covariance = direction.T @ direction / DRAWS
    assert_moment(covariance, np.eye(size) / size, np.sqrt(3 / DRAWS) / size)
    assert_moment((length**2).mean(), 1.0, np.sqrt(2 / DRAWS))


def test_mean_field_noise_is_standard_normal():
    noise = noise_of(MeanField, (5,)).numpy().ravel()
    assert stats.kstest(noise, stats.norm.cdf).pvalue > 1e-6


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("size", [1, 2, 3])
def test_density_integrates_to_one(family, size):
    # A fine grid around the pole of the Radial density misses the inside of
    # one cell. The probability of that cell is below its radius.
    q = family(np.full(size, 0.3, "float32"), np.full(size, 0.5, "float32"))
    points = {1: 801, 2: 801, 3: 161}[size]
    axis = np.linspace(-3, 3, points) + 0.5 * 6 / (points - 1)
    grid = np.stack(np.meshgrid(*[axis] * size), -1).reshape(-1, size)
    density = np.exp(_log_probs(q, grid.astype("float32")))
    integral = density.sum() * (axis[1] - axis[0]) ** size
    assert integral == pytest.approx(1.0, abs={1: 1e-3, 2: 2e-2, 3: 8e-2}[size])


def _log_probs(q, points):
    if len(points) > 10_000:
        rho = np.linalg.norm((points - q.mean) / q.stddev, axis=1)
        if isinstance(q, MeanField):
            return stats.norm.logpdf(points, q.mean, q.stddev).sum(axis=-1)
        # The same function of the distance, checked at every 20,000th point.
        known = _log_probs(q, points[::20_000])
        size = points.shape[1]
        shape = -(rho**2) / 2 - (size - 1) * np.log(rho)
        constant = known - shape[::20_000]
        np.testing.assert_allclose(constant, constant[0], atol=1e-4)
        return shape + constant[0]
    return np.array([np.sum(q.log_prob(x)) for x in points])


PRIORS = {
    "normal": bdl.priors.Normal(0.7, 0.1),
    "he": bdl.priors.HeNormal(),
    "laplace": bdl.priors.Laplace(0.5, 0.2),
    "mixture": bdl.extend.ScaleMixture(1.0, 0.1),
}


@pytest.mark.parametrize("prior", PRIORS)
@pytest.mark.parametrize(
    ("family", "size"),
    [(MeanField, 7), (Radial, 1), (Radial, 7), (Radial, 100_000)],
)
def test_divergence_is_the_mean_log_ratio_of_the_densities(family, size, prior):
    rng = np.random.default_rng(size)
    mean = rng.normal(0, 0.3, size).astype("float32")
    stddev = rng.uniform(0.2, 0.6, size).astype("float32")
    if family is Radial:
        stddev *= np.sqrt(size)
    q, p = family(mean, stddev), PRIORS[prior]
    draws = 200 if size > 1000 else DRAWS
    noises = noise_of(family, (size,), draws)

    def ratio(noise):
        w = q.mean + q.stddev * noise
        return tf.reduce_sum(q.log_prob(w)) - tf.reduce_sum(p.log_prob(w))

    def divergence(noise):
        return q.kl_divergence(p, lambda: noise)

    ratios = each(ratio, noises).numpy().astype("float64")
    kls = each(divergence, noises).numpy().astype("float64")
    spread = np.hypot(ratios.std(), kls.std())
    if family is Radial:
        # The logarithm of the length has a long tail that draws may miss.
        spread = max(spread, (size - 1) * np.pi / np.sqrt(8))
    error = spread / np.sqrt(draws)
    # Plus the rounding error of a long sum.
    error += 1e-6 * np.abs(ratios).max()
    assert_moment(kls.mean(), ratios.mean(), error)
    closed = prior in ("normal", "he")
    closed |= prior == "laplace" and family is MeanField
    if closed:
        assert np.ptp(kls) <= 1e-6 * np.abs(kls).max()


@pytest.mark.parametrize("prior_family", FAMILIES)
@pytest.mark.parametrize("family", FAMILIES)
def test_distributions_are_priors_too(family, prior_family):
    rng = np.random.default_rng(3)
    q = family(rng.normal(size=6).astype("f"), np.full(6, 0.8, "f"))
    p = prior_family(rng.normal(size=6).astype("f"), np.full(6, 1.1, "f"))
    noises = noise_of(family, (6,), 20_000)
    w = q.mean + q.stddev * noises
    log = each(
        lambda x: tf.reduce_sum(q.log_prob(x)) - tf.reduce_sum(p.log_prob(x)), w
    ).numpy()
    kls = each(lambda n: q.kl_divergence(p, lambda: n), noises).numpy()
    error = np.hypot(log.std(), kls.std()) / np.sqrt(len(log))
    assert_moment(kls.mean(), log.mean(), error)


@pytest.mark.parametrize("prior_family", FAMILIES)
@pytest.mark.parametrize("family", FAMILIES)
def test_divergence_and_gradients_are_finite_for_any_rho(family, prior_family):
    for rho in (-20.0, -5.0, 0.0, 20.0):
        rhos = tf.Variable(tf.fill([50], rho))
        mean = tf.Variable(np.linspace(-1, 1, 50).astype("float32"))
        same = prior_family(
            np.asarray(mean), np.asarray(keras.ops.softplus(rhos))
        )
        for prior in (*PRIORS.values(), same):
            with tf.GradientTape() as tape:
                q = family(mean, keras.ops.softplus(rhos))
                noise = noise_of(family, (50,), 1)[0]
                kl = q.kl_divergence(prior, lambda noise=noise: noise)
            gradients = tape.gradient(kl, [mean, rhos])
            for tensor in (kl, *[g for g in gradients if g is not None]):
                assert np.isfinite(tensor).all(), (rho, prior)


def test_radial_divergence_has_its_optimum_at_the_closed_form():
    # sigma = s sqrt(D), mu = m: the gradient of the KL to N(m, s^2) is zero.
    s, size = 0.3, 20
    mean, stddev = tf.fill([size], 0.1), tf.fill([size], s * size**0.5)
    with tf.GradientTape() as tape:
        tape.watch([mean, stddev])
        kl = Radial(mean, stddev).kl_divergence(bdl.priors.Normal(s, 0.1), None)
    for gradient in tape.gradient(kl, [mean, stddev]):
        np.testing.assert_allclose(gradient, np.zeros(size), atol=1e-5)


def lengths_and_weights(points=400):
    """Returns lengths from zero on, evenly spaced in their logarithm."""
    t = np.linspace(-18.0, np.log(9.0), points)
    return np.exp(t), np.exp(t) * (t[1] - t[0])


def sphere(size):
    """Returns directions, and the part of the sphere around each."""
    if size == 1:
        return np.array([[1.0], [-1.0]]), np.ones(2)
    phi = 2 * np.pi * np.arange(24) / 24
    circle = np.stack([np.cos(phi), np.sin(phi)], 1)
    if size == 2:
        return circle, np.full(24, 2 * np.pi / 24)
    z, weights = np.polynomial.legendre.leggauss(12)
    flat = np.sqrt(1 - z**2)[:, None, None] * circle
    height = np.broadcast_to(z[:, None, None], (12, 24, 1))
    points = np.concatenate([flat, height], -1).reshape(-1, 3)
    return points, np.repeat(weights, 24) * 2 * np.pi / 24


def in_float64(function, *values):
    """Maps a function over points in a graph, with sums in float64."""

    @tf.function(autograph=False)
    def run():
        return tf.map_fn(
            lambda one: tf.stack(
                [tf.cast(tf.reduce_sum(y), "float64") for y in function(*one)]
            ),
            tuple(tf.constant(v) for v in values),
            fn_output_signature=tf.float64,
        )

    return run().numpy()


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("size", [1, 2, 3])
def test_density_integrates_to_one_and_its_logarithm_to_the_entropy(
    family, size
):
    stddev = np.array([0.4, 1.3, 0.8], "float32")[:size]
    mean = np.array([0.3, -2.0, 1.0], "float32")[:size]
    q = family(mean, stddev)
    r, dr = lengths_and_weights(400 if size < 3 else 150)
    u, du = sphere(size)
    noise = (r[:, None, None] * u).reshape(-1, size)
    volume = np.outer(r ** (size - 1) * dr, du).ravel() * stddev.prod()
    points = (mean + stddev * noise).astype("float32")
    log_q = in_float64(lambda w: [q.log_prob(w)], points)[:, 0]
    mass = np.exp(log_q) * volume
    assert mass.sum() == pytest.approx(1.0, abs=1e-3)
    entropy = float(np.sum(q.negative_entropy()))
    assert np.sum(mass * log_q) == pytest.approx(entropy, abs=1e-2)


def priors(size):
    rng = np.random.default_rng(1)
    other = rng.normal(0, 0.3, size).astype("f"), np.full(size, 0.7, "f")
    radial = Radial(other[0], other[1] * np.float32(size**0.5))
    return {
        "normal": bdl.priors.Normal(0.7, 0.1),
        "laplace": bdl.priors.Laplace(0.5, 0.2),
        "student": bdl.extend.TFPDistribution(tfd.StudentT(5.0, 0.0, 0.5)),
        "mean-field": MeanField(*other),
        "Radial": radial,
    }


@pytest.mark.parametrize("prior", priors(1))
@pytest.mark.parametrize("size", [1, 100_000])
def test_radial_divergence_equals_the_integral_over_all_lengths(size, prior):
    # One draw of log q has a standard deviation of the order of `size`, which
    # would hide any error. So this test draws only directions.
    rng = np.random.default_rng(size)
    mean = rng.normal(0, 0.3, size).astype("f")
    stddev = (rng.uniform(0.2, 0.6, size) * size**0.5).astype("f")
    q, centred = Radial(mean, stddev), Radial(0 * mean, stddev)
    p = priors(size)[prior]
    number, points = (4, 40) if size > 1000 else (16, 200)
    directions = rng.normal(size=(number, size))
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    directions = tf.constant(directions, "float32")
    r, dr = lengths_and_weights(points)
    probability = np.exp(-(r**2) / 2) * dr
    probability /= probability.sum()

    def ratio_and_divergence(direction, length):
        noise = length * directions[direction]
        # The noise alone: adding a mean would round off its small lengths.
        log_q = tf.reduce_sum(centred.log_prob(stddev * noise))
        log_p = tf.reduce_sum(p.log_prob(mean + stddev * noise))
        return log_q - log_p, q.kl_divergence(p, lambda: noise)

    found = in_float64(
        ratio_and_divergence,
        np.repeat(np.arange(number), 2 * points),
        np.tile(np.concatenate([r, -r]), number).astype("float32"),
    ).reshape(number, 2, points, 2)
    ratio, kl = np.moveaxis(found.mean(1), 2, 0) @ probability
    error = np.hypot(ratio.std(ddof=1), kl.std(ddof=1)) / number**0.5
    # Rounding error: the terms are larger than their sum.
    error += 1e-5 * size**0.5 + 1e-6 * np.abs(found).max()
    assert error < 0.05 * abs(ratio.mean()) + 0.1
    assert_moment(kl.mean(), ratio.mean(), error)


@pytest.mark.parametrize("size", [1, 41])
@pytest.mark.parametrize("family", FAMILIES)
def test_gradients_are_finite_for_small_and_large_rho_side_by_side(
    family, size
):
    for low in np.linspace(-20, 20, 9) if size == 1 else [-20]:
        rho = tf.constant(np.linspace(low, 20, size), "float32")
        mean = tf.constant(np.linspace(0.1, 1, size), "float32")
        same = family(np.asarray(mean), np.asarray(tf.nn.softplus(rho)))
        noise = family.noise(
            tf.linspace(-0.9, 0.8, family.num_normals(size)), (size,)
        )
        for prior in (*priors(size).values(), same):
            with tf.GradientTape() as tape:
                tape.watch([mean, rho])
                q = family(mean, tf.nn.softplus(rho))
                kl = q.kl_divergence(prior, lambda n=noise: n)
            for tensor in (kl, *tape.gradient(kl, [mean, rho])):
                assert np.isfinite(tensor).all(), (low, prior)
