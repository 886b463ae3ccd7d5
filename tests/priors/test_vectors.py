import keras
import numpy as np
import pytest
import scipy.integrate
import scipy.special
import scipy.stats
import tensorflow as tf

from keras_bdl.extend import GroupLaplace
from keras_bdl.extend import UnitDirection
from keras_bdl.optimizers import ATMC
from keras_bdl.optimizers import SGNHT
from tests.helpers import assert_moment

B = 0.7


@pytest.mark.parametrize(
    ("d", "normalizer"),
    [
        (1, 2 * B),
        (2, 2 * np.pi * B**2),
        (3, 8 * np.pi * B**3),
        (4, 12 * np.pi**2 * B**4),
    ],
)
def test_group_laplace_equals_minus_the_length_and_a_constant(d, normalizer):
    v = np.linspace(-1.0, 2.0, 2 * d).astype("float32").reshape(d, 2)
    expected = -np.linalg.norm(v, axis=0) / B - np.log(normalizer)
    np.testing.assert_allclose(GroupLaplace(B).log_prob(v), expected, rtol=1e-6)


def unit_direction_constant(d):
    """Returns Z of `UnitDirection`, from a parabolic cylinder function.

    Gradshteyn and Ryzhik 3.462.1, with t = r^2.
    """
    cylinder, _ = scipy.special.pbdv(-d / 2, -np.sqrt(d))
    return (np.pi / np.sqrt(d)) ** (d / 2) * np.exp(-d / 4) * cylinder


@pytest.mark.parametrize("d", [1, 2, 3, 9, 50])
def test_normalizer_of_unit_direction_equals_the_closed_form(d):
    v = np.full((d, 1), 1.2 / np.sqrt(d), "float32")
    expected = -d / 2 * (1.44 - 1) ** 2 - np.log(unit_direction_constant(d))
    np.testing.assert_allclose(
        UnitDirection().log_prob(v)[0], expected, rtol=1e-6, atol=1e-6
    )


def norm_moments(d):
    """Returns the log integral of the density of the length, and its mean."""
    mode = np.sqrt((1 + np.sqrt(3 - 2 / d)) / 2)

    def log_density(r):
        return (d - 1) * np.log(r) - d / 2 * (r**2 - 1) ** 2

    width = 30 / np.sqrt(d)
    low, high = max(mode - width, 1e-12), mode + width
    zeroth, first = (
        scipy.integrate.quad(
            lambda r, n=n: r**n * np.exp(log_density(r) - log_density(mode)),
            low,
            high,
            points=[mode],
            limit=200,
        )[0]
        for n in (0, 1)
    )
    return np.log(zeroth) + log_density(mode), first / zeroth


@pytest.mark.parametrize("d", [4, 4608, 100_000])
def test_normalizer_of_unit_direction_equals_the_quadrature(d):
    radial, _ = norm_moments(d)
    area = np.log(2) + d / 2 * np.log(np.pi) - scipy.special.gammaln(d / 2)
    v = np.zeros((d, 1), "float32")
    v[0] = 1.0  # the exponent is zero
    np.testing.assert_allclose(
        UnitDirection().log_prob(v)[0], -(area + radial), rtol=1e-6
    )


def test_group_spans_all_axes_but_the_last_or_one_entry_of_a_bias():
    x = np.random.default_rng(0).normal(size=(2, 3, 5)).astype("float32")
    for prior in (GroupLaplace(B), UnitDirection()):
        together = prior.log_prob(x)
        assert together.shape == (5,)
        apart = [prior.log_prob(x[..., i : i + 1])[0] for i in range(5)]
        np.testing.assert_allclose(together, apart, rtol=1e-6)
        bias = prior.log_prob(x[0, 0])
        assert bias.shape == (5,)
        np.testing.assert_allclose(bias, prior.log_prob(x[0, :1]), rtol=1e-6)
        assert prior.log_prob(x[0, 0, 0]).shape == ()


def draw(prior, d, n):
    """Returns lengths and directions of n draws of a reshaped variable."""
    v = prior.sample((1, d, n), seed=2).numpy()[0]
    norms = np.linalg.norm(v, axis=0)
    return norms, v / norms


NORMS = {
    "group laplace": (
        GroupLaplace(B),
        lambda r: scipy.stats.gamma(5).cdf(r / B),
    ),
    # With d = 2, the squared length is a normal number truncated at zero.
    "unit direction": (
        UnitDirection(),
        lambda r: scipy.stats.truncnorm(-np.sqrt(2), np.inf).cdf(
            (r**2 - 1) * np.sqrt(2)
        ),
    ),
}


@pytest.mark.parametrize("name", NORMS)
def test_draws_have_the_exact_length_and_a_uniform_direction(name):
    prior, cdf = NORMS[name]
    d, n = 5 if name == "group laplace" else 2, 20_000
    norms, u = draw(prior, d, n)
    assert scipy.stats.kstest(norms, cdf).pvalue > 1e-6
    assert_moment(u.mean(axis=1), 0.0, np.sqrt(1 / d / n))
    second = u @ u.T / n
    assert_moment(second, np.eye(d) / d, 1 / d / np.sqrt(n))
    assert_moment(np.corrcoef(norms, u[0])[0, 1], 0.0, 1 / np.sqrt(n))


def test_single_weights_have_either_sign():
    n = 20_000
    laplace = GroupLaplace(B).sample((n,), seed=0).numpy()
    cdf = scipy.stats.laplace(0, B).cdf
    assert scipy.stats.kstest(laplace, cdf).pvalue > 1e-6
    both = UnitDirection().sample((n,), seed=0).numpy()
    assert_moment(both.mean(), 0.0, both.std() / np.sqrt(n))
    assert_moment(np.abs(both).mean(), norm_moments(1)[1], 0.5 / np.sqrt(n))


def test_long_vectors_are_near_1_169():
    expected = np.sqrt((1 + np.sqrt(3)) / 2)
    assert norm_moments(100_000)[1] == pytest.approx(expected, rel=1e-5)
    norms, _ = draw(UnitDirection(), 20_000, 20)
    np.testing.assert_allclose(norms, expected, rtol=0.02)
    # 1 / sqrt(4 sqrt(3) d) is the width of the peak.
    stddev = 1 / np.sqrt(4 * np.sqrt(3) * 20_000)
    assert_moment(norms.mean(), norm_moments(20_000)[1], stddev / np.sqrt(20))
    assert_moment(norms.std(ddof=1), stddev, stddev / np.sqrt(2 * 19))


@pytest.mark.parametrize("cls", [ATMC, SGNHT])
def test_chains_of_a_flat_likelihood_have_the_mean_length(cls):
    d, chains, h = 4, 2048, 0.02
    w = keras.Variable(np.full((d, chains), 0.5, "float32"))
    # Mass, speed limit and friction of 1.
    optimizer = cls(
        h,
        dataset_size=10,
        average_speed=h,
        max_speed=h,
        friction=float(np.exp(-h)),
        prior=UnitDirection(),
    )
    optimizer.build([w])

    @tf.function(jit_compile=True)
    def run():
        for _ in tf.range(600):
            optimizer.apply([tf.zeros_like(w.value)], [w])

    run()
    v = w.numpy()
    norms = np.linalg.norm(v, axis=0)
    _, mean = norm_moments(d)
    assert_moment(norms.mean(), mean, norms.std() / np.sqrt(chains))
    assert_moment(v.mean(axis=1), 0.0, v.std() / np.sqrt(chains))
