"""Compares densities and divergences with integrals instead of draws."""

import numpy as np
import pytest
import tensorflow as tf
from tensorflow_probability import distributions as tfd

import keras_bdl as bdl
from keras_bdl.distributions import MeanField
from keras_bdl.distributions import Radial
from tests.helpers import assert_moment

FAMILIES = [MeanField, Radial]


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


def each(function, *values):
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
    log_q = each(lambda w: [q.log_prob(w)], points)[:, 0]
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
        "student": bdl.priors.TFPDistribution(tfd.StudentT(5.0, 0.0, 0.5)),
        "mean-field": MeanField(*other),
        "Radial": radial,
    }


@pytest.mark.parametrize("prior", priors(1))
@pytest.mark.parametrize("size", [1, 10, 100_000])
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

    found = each(
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
