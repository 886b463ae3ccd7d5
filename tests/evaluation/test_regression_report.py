import numpy as np
import pytest
import scipy.integrate
import scipy.stats

from keras_bdl import evaluate
from keras_bdl import metrics
from keras_bdl.evaluation._regression_report import crps_of_values
from keras_bdl.evaluation._regression_report import interval_coverages
from keras_bdl.evaluation._regression_report import log_densities
from keras_bdl.prediction import RegressionPrediction


def make_data(draws=3, shape=(6, 2), seed=0):
    rng = np.random.default_rng(seed)
    means = rng.normal(size=(draws, *shape))
    variances = rng.uniform(0.1, 2.0, size=(draws, *shape))
    return 1.5 * rng.normal(size=shape), means, variances


def test_log_likelihood_is_that_of_the_averaged_density():
    y, means, variances = make_data()
    density = scipy.stats.norm(means, np.sqrt(variances)).pdf(y).mean(0)
    np.testing.assert_allclose(
        log_densities(y, means, variances), np.log(density)
    )


def test_crps_is_the_integral_of_its_definition():
    y, means, variances = make_data(shape=(3,))

    def integral(point, m, v):
        def integrand(t):
            cdf = scipy.stats.norm(m, np.sqrt(v)).cdf(t).mean()
            return (cdf - (t >= point)) ** 2

        return scipy.integrate.quad(integrand, -15, 15, points=[point])[0]

    expected = [integral(y[i], means[:, i], variances[:, i]) for i in range(3)]
    np.testing.assert_allclose(
        crps_of_values(y, means, variances), expected, rtol=1e-6
    )


def test_crps_of_points_without_variance():
    # One point: the absolute error. Two points 0 and 2, target 1:
    # E|X - y| = 1 and E|X - X'| = 1, hence 1/2.
    zero = np.zeros((1, 1))
    assert crps_of_values(np.array([3.0]), zero + 1, zero) == 2.0
    two = np.array([[0.0], [2.0]])
    assert crps_of_values(np.array([1.0]), two, np.zeros((2, 1))) == 0.5


def test_coverage_counts_values_between_the_quantiles():
    y, means, variances = make_data(shape=(400,))

    def quantile(q, m, v):
        return scipy.optimize.brentq(
            lambda t: scipy.stats.norm.cdf(t, m, np.sqrt(v)).mean() - q,
            -20,
            20,
        )

    chosen = range(0, 400, 20)
    inside = [
        quantile(0.2, means[:, i], variances[:, i])
        <= y[i]
        <= quantile(0.8, means[:, i], variances[:, i])
        for i in chosen
    ]
    assert 0.2 < np.mean(inside) < 0.9
    actual = interval_coverages(
        y[chosen], means[:, chosen], variances[:, chosen], [0.6]
    )
    assert actual == {0.6: np.mean(inside)}


def test_streaming_metrics_agree_on_one_gaussian():
    y, means, variances = make_data(draws=1, shape=(50, 1))
    output = np.hstack([means[0], np.sqrt(variances[0])])
    for metric, expected in (
        (metrics.GaussianLogLikelihood(), log_densities(y, means, variances)),
        (
            metrics.ContinuousRankedProbabilityScore(),
            crps_of_values(y, means, variances),
        ),
        (
            metrics.IntervalCoverage(level=0.8),
            interval_coverages(y, means, variances, [0.8])[0.8],
        ),
    ):
        metric.update_state(y, output)
        np.testing.assert_allclose(
            metric.result(), np.mean(expected), rtol=1e-5
        )


def test_a_negative_variance_is_refused():
    prediction = RegressionPrediction(
        np.zeros(2), variance_within=np.full(2, -1.0)
    )
    with pytest.raises(ValueError, match="must not be negative.*of -1"):
        evaluate(prediction, [0.0, 0.0])
