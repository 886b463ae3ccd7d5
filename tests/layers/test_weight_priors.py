import keras
import numpy as np
import pytest
import tensorflow as tf
from scipy import integrate
from scipy import special
from scipy import stats
from tensorflow_probability import distributions as tfd

import keras_bdl as bdl
from keras_bdl import layers
from keras_bdl.distributions import MeanField
from keras_bdl.layers._weight_priors import StoredPrior
from keras_bdl.priors import Laplace
from keras_bdl.priors import Normal
from tests.helpers import assert_moment
from tests.helpers import own_garbage

X = np.random.default_rng(0).normal(size=(8, 3)).astype("float32")
KINDS = ["MeanFieldDense", "RadialDense"]


def built(kind="MeanFieldDense", units=2, **kwargs):
    layer = getattr(layers, kind)(
        units,
        bias_initializer=keras.initializers.RandomNormal(seed=1),
        kernel_initializer=keras.initializers.RandomNormal(seed=2),
        rho_initializer=keras.initializers.RandomUniform(-2, 1, seed=3),
        **kwargs,
    )
    layer.build((None, 3))
    return layer


def gaussian_divergence(layer, name, prior_mean, prior_stddev):
    """Returns the KL of one tensor, in closed form and double precision."""
    mean, rho = (
        np.asarray(getattr(layer, f"{name}_{part}"), "float64").ravel()
        for part in ("mean", "rho")
    )
    m, s = (np.ravel(np.asarray(p, "f8")) for p in (prior_mean, prior_stddev))
    stddev, size = np.log1p(np.exp(rho)), len(mean)
    if isinstance(layer, bdl.extend.MeanFieldLayer):
        square = stddev**2 + (mean - m) ** 2
        return np.sum(np.log(s / stddev) + square / (2 * s**2) - 0.5)
    scale = np.sqrt(size) * stddev
    area = np.log(2) + size / 2 * np.log(np.pi) - special.gammaln(size / 2)
    entropy = np.log(2) - np.log(2 * np.pi) / 2 - 0.5 - area
    entropy += (size - 1) * (np.euler_gamma + np.log(2)) / 2
    square = (mean - m) ** 2 + stddev**2
    log_prior = -square / (2 * s**2) - np.log(2 * np.pi * s**2) / 2
    return entropy - np.sum(np.log(scale)) - np.sum(log_prior + 0 * mean)


def total(layer, kernel, bias):
    parts = {"kernel": kernel, "bias": bias}
    return sum(gaussian_divergence(layer, n, *p) for n, p in parts.items())


def kl_of(layer):
    return float(layer.kl_divergence())


@pytest.mark.parametrize("kind", KINDS)
def test_bias_has_the_prior_of_the_kernel_unless_it_has_another(kind):
    normal, other = bdl.priors.Normal(0.7, 0.1), bdl.priors.Normal(0.2, -1.0)
    one = built(kind, prior=normal)
    expected = total(one, (0.1, 0.7), (0.1, 0.7))
    assert kl_of(one) == pytest.approx(expected, rel=1e-5)
    both = built(kind, prior=normal, bias_prior=other)
    expected = total(both, (0.1, 0.7), (-1.0, 0.2))
    assert kl_of(both) == pytest.approx(expected, rel=1e-5)
    again = type(both).from_config(both.get_config())
    again.build((None, 3))
    again.set_weights(both.get_weights())
    assert kl_of(again) == kl_of(both)


TFP = {
    "Normal": (tfd.Normal(0.1, 0.7), stats.norm(0.1, 0.7)),
    "Laplace": (tfd.Laplace(0.1, 0.4), stats.laplace(0.1, 0.4)),
    "StudentT": (tfd.StudentT(3.0, 0.1, 0.5), stats.t(3.0, 0.1, 0.5)),
}


@pytest.mark.parametrize("prior", TFP)
@pytest.mark.parametrize("kind", KINDS)
def test_prior_of_tfp_survives_the_file_with_its_divergence(
    kind, prior, tmp_path
):
    distribution, _ = TFP[prior]
    layer = built(kind, prior=distribution, dataset_size=8)
    model = bdl.Sequential([keras.Input((3,)), layer])
    model.compile("sgd", "mse")
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    revived = loaded.layers[0]
    assert kl_of(revived) == kl_of(layer)
    assert type(revived.prior.distribution) is type(distribution)
    logs = loaded.fit(X, X[:, :2], verbose=0).history
    assert np.isfinite(logs["loss"]).all() and kl_of(revived) != kl_of(layer)


@pytest.mark.parametrize("prior", TFP)
def test_divergence_to_a_prior_of_tfp_is_the_integral(prior):
    distribution, p = TFP[prior]
    layer = built(prior=distribution, use_bias=False, dataset_size=1, seed=0)
    q = layer.posteriors["kernel"]
    expected = 0.0
    for mean, stddev in zip(np.ravel(q.mean), np.ravel(q.stddev), strict=True):
        one = stats.norm(mean, stddev)
        expected += integrate.quad(
            lambda w, one=one: one.pdf(w) * (one.logpdf(w) - p.logpdf(w)),
            *one.ppf([1e-15, 1 - 1e-15]),
            points=[0.1],
        )[0]
    if prior == "Normal":
        assert kl_of(layer) == pytest.approx(expected, rel=1e-5)
        return

    def sampled(_):
        layer(X, training=True)
        return layer.kl_per_example

    draws = tf.function(lambda: tf.map_fn(sampled, tf.zeros(1000)))().numpy()
    error = np.std(draws) / np.sqrt(len(draws))
    assert_moment(np.mean(draws), expected, error)


def test_set_prior_changes_only_the_named_tensors_and_the_config():
    layer = built(prior=bdl.priors.Normal(0.7, 0.1))
    for new, expected in (
        ({"kernel": bdl.priors.Normal(0.3)}, ((0.0, 0.3), (0.1, 0.7))),
        ({"bias": tfd.Normal(-0.5, 0.2)}, ((0.0, 0.3), (-0.5, 0.2))),
    ):
        layer.set_prior(**new)
        expected = total(layer, *expected)
        assert kl_of(layer) == pytest.approx(expected, rel=1e-5)
        again = type(layer).from_config(layer.get_config())
        again.build((None, 3))
        again.set_weights(layer.get_weights())
        assert kl_of(again) == kl_of(layer)


def test_set_prior_stores_a_distribution_in_weights_until_replaced():
    layer = built()
    ordinary = len(layer.weights)
    means, stddevs = np.full((3, 2), 0.2, "f"), np.full((3, 2), 0.4, "f")
    layer.set_prior(kernel=MeanField(means, stddevs))
    expected = total(layer, (means, stddevs), (0.0, 1.0))
    assert kl_of(layer) == pytest.approx(expected, rel=1e-5)
    added = [v.name for v in layer.non_trainable_weights]
    assert added == ["kernel_prior_mean", "kernel_prior_stddev"]
    assert layer.prior.get_config() == {"family": "mean_field"}
    with own_garbage():  # Keras calls `gc.collect` for each lost variable.
        layer.set_prior(kernel=bdl.priors.Normal(0.3))
    assert len(layer.weights) == ordinary
    expected = total(layer, (0.0, 0.3), (0.0, 1.0))
    assert kl_of(layer) == pytest.approx(expected, rel=1e-5)


def test_new_values_of_a_stored_prior_need_no_new_compilation(tmp_path):
    layer = built(prior=StoredPrior("mean_field"))
    model = bdl.Sequential([keras.Input((3,)), layer])
    model.compile(keras.optimizers.SGD(0.0), "mse")
    before = model.fit(X, X[:, :2], verbose=0).history["kl"][0]
    expected = total(layer, (0.0, 1.0), (0.0, 1.0)) / len(X)
    assert before == pytest.approx(expected, rel=1e-5)
    trace, parts = model.train_function, {"kernel": (3, 2), "bias": (2,)}
    layer.set_prior(
        **{
            name: MeanField(np.full(shape, 0.2, "f"), np.full(shape, 0.4, "f"))
            for name, shape in parts.items()
        }
    )
    after = model.fit(X, X[:, :2], verbose=0).history["kl"][0]
    assert model.train_function is trace
    expected = total(layer, (0.2, 0.4), (0.2, 0.4)) / len(X)
    assert after == pytest.approx(expected, rel=1e-5)
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    assert kl_of(loaded.layers[0]) == kl_of(layer)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("bias", ["deterministic", "none"])
def test_bias_without_a_distribution_has_no_divergence(kind, bias):
    if bias == "none":
        layer, other = built(kind, use_bias=False), built(kind)
    else:
        layer, other = built(kind, variational_bias=False), built(kind)
        assert [v.name for v in layer.trainable_weights] == [
            "kernel_mean",
            "kernel_rho",
            "bias",
        ]
        layer.bias.assign([3.0, -2.0])
        np.testing.assert_allclose(
            layer(np.zeros((1, 3), "f"), training=False), [[3.0, -2.0]]
        )
        layer.dataset_size.given = 1
        np.testing.assert_allclose(
            layer(np.zeros((1, 3), "f"), training=True), [[3.0, -2.0]]
        )
    assert list(layer.posteriors) == ["kernel"]
    layer.set_weights(
        [*other.get_weights()[:2], *layer.get_weights()[2:]],
    )
    expected = gaussian_divergence(other, "kernel", 0.0, 1.0)
    assert kl_of(layer) == pytest.approx(expected, rel=1e-5)
    with pytest.raises(ValueError, match=r"of \['kernel'\]. Give .*\['bias'\]"):
        layer.set_prior(bias=bdl.priors.Normal(1.0))


def test_invalid_prior_is_refused_and_changes_nothing():
    layer = built()
    before = kl_of(layer), layer.get_config()
    wrong = MeanField(np.zeros((2, 3), "f"), np.ones((2, 3), "f"))
    for message, call in (
        (r"of \['bias', 'kernel'\]", lambda: layer.set_prior(weights=wrong)),
        (
            r"shape of the weights, \(3, 2\)",
            lambda: layer.set_prior(kernel=wrong),
        ),
        (r"shape of the weights, \(3, 2\)", lambda: built(prior=wrong)),
        ("`prior` must be `None`", lambda: layer.set_prior(kernel="normal")),
        ("`prior` must be `None`", lambda: built(bias_prior=1.0)),
        (
            "must be positive everywhere",
            lambda: layer.set_prior(bias=MeanField(np.zeros(2), np.zeros(2))),
        ),
        (
            "must be finite",
            lambda: layer.set_prior(
                bias=MeanField(np.full(2, np.nan), np.ones(2))
            ),
        ),
        (
            r"shape of the weights, \(3, 2\)",
            lambda: layer.set_prior(bias=bdl.priors.Normal(0.1), kernel=wrong),
        ),
        (
            "of `kernel` must not be `None`",
            lambda: layer.set_prior(kernel=None),
        ),
        (
            "gets its weights when it is built",
            lambda: layers.RadialDense(1).set_prior(),
        ),
        ("`family` must be one of", lambda: StoredPrior("gaussian")),
    ):
        with pytest.raises(ValueError, match=message):
            call()
    assert (kl_of(layer), layer.get_config()) == before


def test_priors_set_in_any_order_come_back_from_a_file(tmp_path):
    layer = layers.RadialDense(2)
    model = keras.Sequential([keras.Input((3,)), layer])
    q = layer.posteriors
    layer.set_prior(bias=q["bias"])
    layer.set_prior(kernel=q["kernel"])
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras").layers[0]
    assert len(layer.non_trainable_variables) == 5  # and a seed
    for name in ("kernel", "bias"):
        for part in ("mean", "stddev"):
            stored = getattr(loaded, f"{name}_prior_{part}")
            np.testing.assert_array_equal(stored, getattr(q[name], part))


def test_prior_version_counts_only_new_kinds_of_priors():
    layer = layers.MeanFieldDense(2)
    layer.build((None, 3))
    versions = [layer.prior_version]
    for prior in (Normal(2.0), Laplace(1.0)):
        layer.set_prior(kernel=prior)
        versions.append(layer.prior_version)
    layer.posterior_becomes_prior()
    versions.append(layer.prior_version)
    layer.posterior_becomes_prior(lambda q: type(q)(q.mean, 2 * q.stddev))
    versions.append(layer.prior_version)
    assert versions == [0, 1, 2, 3, 3]
