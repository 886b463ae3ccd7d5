import keras
import numpy as np
import pytest
import scipy.integrate
import scipy.stats
import tensorflow as tf

from keras_bdl import metrics
from tests.helpers import check_config

GAUSSIAN = [
    metrics.GaussianLogLikelihood,
    metrics.IntervalCoverage,
    metrics.ContinuousRankedProbabilityScore,
]


def make_data(n=50, targets=1, seed=0):
    rng = np.random.default_rng(seed)
    mean = rng.normal(size=(n, targets))
    stddev = rng.uniform(0.3, 2.0, size=(n, targets))
    return mean + stddev * rng.normal(size=(n, targets)), mean, stddev


def value(metric, *args, **kwargs):
    metric.update_state(*args, **kwargs)
    return float(metric.result())


@pytest.mark.parametrize("cls", GAUSSIAN)
def test_config(cls):
    kwargs = {"noise_stddev": 0.5, "name": "other", "dtype": "float64"}
    if cls is metrics.IntervalCoverage:
        kwargs["level"] = 0.5
    check_config(cls, **kwargs)


def test_log_likelihood_agrees_with_scipy():
    y, mean, stddev = make_data(targets=2)
    weight = np.arange(50.0)
    logpdf = scipy.stats.norm(mean, stddev).logpdf(y).mean(-1)
    actual = value(
        metrics.GaussianLogLikelihood(),
        y,
        np.concatenate([mean, stddev], -1),
        sample_weight=weight,
    )
    np.testing.assert_allclose(
        actual, np.average(logpdf, weights=weight), rtol=1e-5
    )


@pytest.mark.parametrize("targets", [1, 2])
@pytest.mark.parametrize("name", ["MeanAbsoluteError", "RootMeanSquaredError"])
def test_errors_of_the_mean_are_those_of_keras_without_the_noise(name, targets):
    y, mean, stddev = make_data(targets=targets)
    weight = np.arange(50.0)
    expected = value(getattr(keras.metrics, name)(), y, mean, weight)
    metric = getattr(metrics, name)()
    actual = value(metric, y, np.hstack([mean, stddev]), weight)
    np.testing.assert_allclose(actual, expected, rtol=1e-5)
    check_config(type(metric), name="other", dtype="float64")
    with pytest.raises(ValueError, match=f"keras.metrics.{name}"):
        metric.update_state(y[:, 0], mean[:, 0])


def test_coverage_counts_values_inside_the_central_interval():
    y, mean, stddev = make_data(500)
    low, high = scipy.stats.norm(mean, stddev).interval(0.8)
    actual = value(
        metrics.IntervalCoverage(level=0.8), y, np.hstack([mean, stddev])
    )
    np.testing.assert_allclose(actual, np.mean((low < y) & (y < high)))


def test_crps_is_the_integral_of_its_definition():
    def integral(point, mean, stddev):
        def integrand(t):
            return (scipy.stats.norm(mean, stddev).cdf(t) - (t >= point)) ** 2

        low, high = mean - 20, mean + 20
        return scipy.integrate.quad(integrand, low, high, points=[point])[0]

    y, mean, stddev = make_data(3)
    integrals = np.vectorize(integral)(y, mean, stddev)
    actual = value(
        metrics.ContinuousRankedProbabilityScore(),
        y,
        np.hstack([mean, stddev]),
    )
    np.testing.assert_allclose(actual, np.mean(integrals), rtol=1e-5)


@pytest.mark.parametrize("cls", GAUSSIAN)
def test_given_stddev_equals_predicted_stddev(cls):
    y, mean, _ = make_data()
    predicted = value(cls(), y, np.hstack([mean, np.full_like(mean, 0.7)]))
    np.testing.assert_allclose(
        value(cls(noise_stddev=0.7), y, mean), predicted, rtol=1e-6
    )


@pytest.mark.parametrize("cls", GAUSSIAN)
def test_flat_targets_do_not_broadcast(cls):
    y, mean, stddev = make_data()
    output = np.hstack([mean, stddev])
    assert value(cls(), y[:, 0], output) == value(cls(), y, output)
    known = value(cls(noise_stddev=1.0), y, mean)
    assert value(cls(noise_stddev=1.0), y, mean[:, 0]) == known
    with pytest.raises(ValueError, match=r"`y_true` must have the shape"):
        value(cls(noise_stddev=1.0), y, np.hstack([mean, mean]))


@pytest.mark.parametrize("cls", GAUSSIAN)
@pytest.mark.parametrize("stddev", [0.0, -1.0, np.nan])
def test_stddev_that_is_not_positive_shows_as_nan(cls, stddev):
    output = np.array([[0.0, 1.0], [0.0, stddev], [0.0, 1.0]])
    assert np.isnan(value(cls(), np.zeros((3, 1)), output))
    with pytest.raises(
        ValueError, match="`noise_stddev` must be a number above 0"
    ):
        cls(noise_stddev=stddev)


@pytest.mark.parametrize("cls", GAUSSIAN)
def test_output_without_stddev_is_refused(cls):
    with pytest.raises(ValueError, match=r"\(noise_stddev=\.\.\.\)`.*\(4, 1\)"):
        value(cls(), np.zeros((4, 1)), np.zeros((4, 1)))


@pytest.mark.parametrize("level", [0.0, 1.0, 95.0])
def test_level_is_checked(level):
    with pytest.raises(ValueError, match="`level` must be a number above 0"):
        metrics.IntervalCoverage(level=level)


def test_two_replicas_give_the_numbers_of_one(mirrored):
    y, mean, stddev = make_data()

    def evaluate():
        model = keras.Sequential([keras.Input((2,)), keras.layers.Identity()])
        model.compile(
            # Any loss that takes an output twice as wide as the targets.
            loss=lambda y_true, y_pred: y_pred[:, 0],
            weighted_metrics=[cls() for cls in GAUSSIAN],
            jit_compile=False,
        )
        data = (np.hstack([mean, stddev]), y, np.arange(50.0))
        data = tf.data.Dataset.from_tensor_slices(data).batch(16)
        return model.evaluate(data, verbose=0, return_dict=True)

    one = evaluate()
    with mirrored.scope():
        two = evaluate()
    for name in (cls().name for cls in GAUSSIAN):
        np.testing.assert_allclose(two[name], one[name], rtol=1e-5)
