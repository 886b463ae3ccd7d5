import types

import numpy as np
import pytest
import scipy.stats
import tensorflow as tf

from keras_bdl.extend import GroupLaplace
from keras_bdl.extend import ScaleMixture
from keras_bdl.extend import SymmetricGamma
from keras_bdl.priors import HeNormal
from keras_bdl.priors import Laplace
from keras_bdl.priors import Normal

X = np.array([-40.0, -2.0, -1e-3, 0.0, 0.02, 0.3, 1.0, 4.0], "float32")
WIDE, NARROW = scipy.stats.norm(0, 2.0), scipy.stats.norm(0, 0.01)
MIXTURE = types.SimpleNamespace(
    logpdf=lambda x: np.logaddexp(
        np.log(0.25) + WIDE.logpdf(x), np.log(0.75) + NARROW.logpdf(x)
    ),
    cdf=lambda x: 0.25 * WIDE.cdf(x) + 0.75 * NARROW.cdf(x),
)
PAIRS = {
    "normal": (Normal(0.5, 0.3), scipy.stats.norm(0.3, 0.5)),
    "laplace": (Laplace(0.5, 0.3), scipy.stats.laplace(0.3, 0.5)),
    "mixture": (ScaleMixture(2.0, 0.01, probability_1=0.25), MIXTURE),
    "mixture upside down": (
        ScaleMixture(0.01, 2.0, probability_1=0.75),
        MIXTURE,
    ),
    "gamma": (SymmetricGamma(9, 0.5), scipy.stats.dgamma(9, scale=0.5)),
    "gamma of 1": (SymmetricGamma(1, 0.5), scipy.stats.laplace(0, 0.5)),
    "gamma below 1": (
        SymmetricGamma(0.5, 2.0),
        scipy.stats.dgamma(0.5, scale=2.0),
    ),
    "gamma of 4608": (SymmetricGamma(4608), scipy.stats.dgamma(4608)),
}


@pytest.mark.parametrize("name", PAIRS)
def test_log_prob_equals_that_of_scipy(name):
    ours, theirs = PAIRS[name]
    with np.errstate(divide="ignore"):
        expected = theirs.logpdf(X.astype("float64"))
    np.testing.assert_allclose(ours.log_prob(X), expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("name", PAIRS)
def test_draws_follow_the_distribution_function(name):
    ours, theirs = PAIRS[name]
    draws = ours.sample((100, 200), seed=1).numpy().ravel()
    assert scipy.stats.kstest(draws, theirs.cdf).pvalue > 1e-6


def test_symmetric_gamma_has_zero_gradient_at_zero_and_the_exact_one_nearby():
    x = tf.constant([0.0, 1e-20, -1e-20])
    for k, at_zero in ((3.0, -np.inf), (0.5, np.inf)):
        with tf.GradientTape() as tape:
            tape.watch(x)
            log_prob = SymmetricGamma(k).log_prob(x)
        score = tape.gradient(log_prob, x)
        assert log_prob[0] == at_zero
        np.testing.assert_allclose(
            score, [0.0, (k - 1) * 1e20, (1 - k) * 1e20], rtol=1e-6
        )


def test_magnitude_of_group_laplace_has_the_density_of_the_vector():
    # The magnitude s of a vector v = s u, u uniform, has half the density of
    # the length: that of v times the area of the sphere of radius |s|.
    d, s = 3, np.array([-0.5, 2.0, 7.0], "float32")
    prior = GroupLaplace(0.7, dataset_size=5)
    of_scales = prior.of_scales(d)
    v = np.eye(3, dtype="float32") * s
    expected = prior.log_prob(v) + np.log(4 * np.pi * s**2 / 2)
    np.testing.assert_allclose(of_scales.log_prob(s), expected, rtol=1e-6)
    assert of_scales.get_config() == {
        "concentration": 3.0,
        "scale": 0.7,
        "dataset_size": 5,
    }
    with pytest.raises(ValueError, match="`length` must be"):
        prior.of_scales(0)


@pytest.mark.parametrize(
    ("shape", "variance"),
    [((50, 4), 0.5 / 50), ((3, 3, 8, 4), 0.5 / 72), ((6,), 0.09), ((), 0.09)],
    ids=["dense", "convolution", "bias", "scalar"],
)
def test_he_normal_has_the_variance_of_the_shape(shape, variance):
    prior, normal = HeNormal(0.5, 0.3), scipy.stats.norm(0, np.sqrt(variance))
    x = np.random.default_rng(0).normal(size=shape).astype("float32")
    expected = normal.logpdf(x)
    np.testing.assert_allclose(prior.log_prob(x), expected, rtol=1e-5)
    assert type(prior.of_shape(shape)) is Normal
    long = (*shape[:-1], 20_000)
    draws = prior.sample(long, seed=0).numpy().ravel()
    assert scipy.stats.kstest(draws[:20_000], normal.cdf).pvalue > 1e-6
