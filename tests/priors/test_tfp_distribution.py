import types

import keras
import numpy as np
import pytest
import scipy.stats
import tensorflow as tf
from tensorflow_probability import bijectors as tfb
from tensorflow_probability import distributions as tfd

from keras_bdl import priors
from keras_bdl.extend import TFPDistribution
from keras_bdl.extend import get_prior
from tests.helpers import assert_moment

X = np.linspace(-1.0, 2.0, 6).astype("float32").reshape(2, 3)


def distributions():
    return {
        "integers": tfd.Cauchy(0, 1),
        "float64": tfd.StudentT(3.0, 0.0, np.float64(0.5)),
        "eager tensors": tfd.Normal(tf.zeros(3), tf.constant([1.0, 2.0, 3.0])),
        "infinity": tfd.TruncatedNormal(0.0, 1.0, -3.0, np.inf),
        "event": tfd.MultivariateNormalTriL(
            np.ones(3), np.tril(np.ones((3, 3)))
        ),
        "nested": tfd.MixtureSameFamily(
            tfd.Categorical(probs=[0.5, 0.5]), tfd.Normal([0.0, 0.0], [1, 0.1])
        ),
        "list": tfd.Mixture(
            tfd.Categorical(logits=[0.0, 1.0]),
            [tfd.Normal(0.0, 1.0), tfd.Laplace(0.0, 1.0)],
        ),
        "reinterpreted": tfd.Independent(
            tfd.Normal(tf.zeros(3), 2.0), reinterpreted_batch_ndims=1
        ),
        "repeated": tfd.Sample(tfd.Normal(0.0, 2.0), [2, 3]),
    }


@pytest.mark.parametrize("name", distributions())
def test_revived_distribution_has_the_same_density(name):
    distribution = distributions()[name]
    prior = TFPDistribution(distribution, dataset_size=7)
    layer = keras.layers.Dense(3, kernel_regularizer=prior)
    layer = keras.layers.Dense.from_config(layer.get_config())
    revived = layer.kernel_regularizer
    assert revived.get_config() == prior.get_config()
    assert type(revived.distribution) is type(distribution)
    assert revived.distribution.dtype == distribution.dtype
    expected = distribution.log_prob(X.astype(distribution.dtype.name))
    np.testing.assert_allclose(revived.log_prob(X), expected, rtol=1e-6)
    assert float(revived(X)) == pytest.approx(-np.sum(expected) / 7, rel=1e-6)


def test_config_omits_default_parameters():
    prior = TFPDistribution(tfd.Normal(0.0, np.float32(2.0)))
    assert prior.get_config()["distribution"] == {
        "class_name": "Normal",
        "parameters": {"loc": 0.0, "scale": {"array": 2.0, "dtype": "float32"}},
    }


def test_float64_distribution_gives_float32_gradients():
    x = tf.Variable([0.5, -1.0])
    with tf.GradientTape() as tape:
        loss = TFPDistribution(tfd.Normal(np.float64(0), 2.0), dataset_size=4)(
            x
        )
    assert loss.dtype == tf.float32
    np.testing.assert_allclose(tape.gradient(loss, x), [0.5 / 16, -1.0 / 16])


@pytest.mark.parametrize(
    ("batch", "event"),
    [((3, 1), ()), ((4,), ()), ((), (4,)), ((3,), (4,)), ((), (3, 4))],
)
def test_draw_has_independent_entries_of_the_shape(batch, event):
    loc = np.arange(np.prod(batch + event)).reshape(batch + event)
    normal = tfd.Normal(loc.astype("float32"), 0.5)
    prior = TFPDistribution(tfd.Independent(normal, len(event)))
    shape, n = (5000, 3, 4), 5000
    z = (prior.sample(shape, seed=3).numpy() - loc) / 0.5
    z = z.reshape(n, 12)
    assert scipy.stats.kstest(z.ravel(), "norm").pvalue > 1e-6
    assert_moment(z.T @ z / n, np.eye(12), np.sqrt(2 / n))


@pytest.mark.parametrize(
    "distribution",
    [
        tfd.Normal(tf.zeros(2), 1.0),
        tfd.Normal(tf.zeros([4, 2, 3]), 1.0),
        tfd.MultivariateNormalDiag(tf.zeros(1)),
        tfd.MultivariateNormalDiag(tf.zeros([4, 3])),
        tfd.Sample(tfd.Normal(0.0, 1.0), [1, 2, 3]),
    ],
    ids=["batch", "batch of more axes", "event", "batch of events", "axes"],
)
def test_distribution_of_another_shape_is_refused(distribution):
    prior = TFPDistribution(distribution)
    with pytest.raises(
        ValueError, match=r"must fit.* variable of shape \(2, 3"
    ):
        prior.log_prob(X)
    with pytest.raises(ValueError, match="must fit the variable"):
        prior.sample((2, 3))


def test_bijector_works_and_raises_a_clear_error_when_saved():
    distribution = tfd.TransformedDistribution(
        tfd.Normal(0.0, 1.0), tfb.Shift(1.0)
    )
    prior = TFPDistribution(distribution)
    expected = scipy.stats.norm(1.0).logpdf(X)
    np.testing.assert_allclose(prior.log_prob(X), expected, rtol=1e-5)
    with pytest.raises(ValueError, match="save_weights.*`bijector` of `Trans"):
        prior.get_config()


def test_class_outside_of_tfp_is_neither_saved_nor_loaded():
    class Own(tfd.Normal):
        pass

    with pytest.raises(ValueError, match="`Own`, which is no class of `tfp"):
        TFPDistribution(Own(0.0, 1.0)).get_config()
    with pytest.raises(ValueError, match="`scale` of `Normal`, a `.*Variable`"):
        TFPDistribution(tfd.Normal(0.0, tf.Variable(1.0))).get_config()
    for name in ("Own", "__builtins__", "ReparameterizationType"):
        config = {"class_name": name, "parameters": {}}
        with pytest.raises(ValueError, match="must name a class of"):
            TFPDistribution.from_config({"distribution": config})


def test_distribution_made_in_a_graph_works_in_other_graphs():
    made = []
    of_variable = tfd.Normal(0.0, tf.Variable(2.0))  # a config cannot hold it

    @tf.function(autograph=False)
    def make():
        made.append(TFPDistribution(tfd.Normal(tf.zeros(3), 2.0)))
        config = made[0].get_config()
        made.append(TFPDistribution.from_config(config))
        made.append(TFPDistribution(of_variable))
        return made[0].log_prob(X)

    expected = scipy.stats.norm(0, 2).logpdf(X)
    np.testing.assert_allclose(make(), expected, rtol=1e-6)
    for prior in made:
        np.testing.assert_allclose(prior.log_prob(X), expected, rtol=1e-6)
        other = tf.function(prior.log_prob, autograph=False)
        np.testing.assert_allclose(other(X), expected, rtol=1e-6)


@pytest.mark.parametrize(
    ("distribution", "message"),
    [
        (tfd.Poisson(1.0).sample, "must be a distribution"),
        (tfd.Categorical(probs=[1.0]), "must draw one tensor"),
        (
            tfd.JointDistributionSequential([tfd.Normal(0.0, 1.0)]),
            "must draw one tensor",
        ),
    ],
    ids=["function", "discrete", "several outputs"],
)
def test_distribution_that_is_not_continuous_is_refused(distribution, message):
    with pytest.raises(ValueError, match=f"`distribution` {message}"):
        TFPDistribution(distribution)


def test_get_wraps_distributions_and_passes_priors():
    normal = tfd.Normal(0.0, 1.0)
    own = types.SimpleNamespace(log_prob=normal.log_prob, sample=normal.sample)
    prior = priors.Laplace()
    assert get_prior(None) is None
    assert get_prior(prior) is prior
    assert get_prior(own) is own
    assert get_prior(normal).distribution is normal


@pytest.mark.parametrize(
    "value", ["normal", 1.0, priors.Normal, keras.regularizers.L2(), {}]
)
def test_get_refuses_objects_that_are_no_prior(value):
    with pytest.raises(ValueError, match="`prior` must be `None`, one of"):
        get_prior(value)
