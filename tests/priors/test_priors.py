import types

import keras
import numpy as np
import pytest
import tensorflow as tf
from tensorflow_probability import distributions as tfd

import keras_bdl as bdl
from keras_bdl import extend
from keras_bdl import priors
from tests.helpers import check_config

X = np.array([[-2.0, 0.0, 0.3], [0.5, 1.0, 4.0]], "float32")
ARGUMENTS = {
    "GroupLaplace": {"scale": 0.5},
    "HeNormal": {"gain": 0.5, "bias_stddev": 0.25},
    "Laplace": {"scale": 0.5, "mean": 0.25},
    "Normal": {"stddev": 0.5, "mean": 0.25},
    "ScaleMixture": {"stddev_1": 2.0, "stddev_2": 0.1, "probability_1": 0.25},
    "SymmetricGamma": {"concentration": 2.5, "scale": 0.5},
    "UnitDirection": {},
}


def class_of(name):
    return getattr(priors if name in priors.__all__ else extend, name)


def make(name):
    if name == "TFPDistribution":
        return extend.TFPDistribution(tfd.StudentT(3.0, 0.0, np.float64(0.5)))
    return class_of(name)(**ARGUMENTS[name])


ALL = [*ARGUMENTS, "TFPDistribution"]


@pytest.mark.parametrize("name", ARGUMENTS)
def test_config_has_every_argument(name):
    check_config(class_of(name), **ARGUMENTS[name], dataset_size=7)


@pytest.mark.parametrize("name", ALL)
def test_score_is_finite_at_zero_and_equal_under_xla(name):
    prior = make(name)

    def scores(*variables):
        with tf.GradientTape() as tape:
            tape.watch(variables)
            parts = [tf.reduce_sum(prior.log_prob(v)) for v in variables]
        return tape.gradient(parts, variables)

    draws = [prior.sample(shape, seed=3) for shape in ((3, 2, 4), (4,), ())]
    variables = [*draws, *(tf.zeros_like(v) for v in draws)]
    eager = scores(*variables)
    compiled = tf.function(scores, jit_compile=True)(*variables)
    for a, b, v in zip(eager, compiled, variables, strict=True):
        assert a.shape == v.shape
        assert a.dtype == tf.float32
        assert np.isfinite(a).all()
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", ALL)
def test_draw_depends_on_the_seed_alone_and_compiles_with_xla(name):
    prior, shape = make(name), (3, 2, 4)
    draw = prior.sample(shape, seed=3)
    assert draw.shape == shape
    assert draw.dtype == tf.float32
    np.testing.assert_array_equal(prior.sample(shape, seed=3), draw)
    generator = keras.random.SeedGenerator(3)
    compiled = tf.function(
        lambda: prior.sample(shape, generator), jit_compile=True
    )
    draws = [draw, prior.sample(shape), prior.sample(shape)]
    draws += [compiled(), compiled()]
    assert np.isfinite(draws).all()
    assert len(np.unique(draws)) == 5 * 24


@pytest.mark.parametrize("dtype", ["float32", "mixed_bfloat16", "bfloat16"])
def test_every_prior_is_a_regularizer_and_survives_saving(dtype, tmp_path):
    inputs = x = keras.Input((3,))
    for name in ALL:
        prior = make(name)
        prior.dataset_size.given = 8
        x = keras.layers.Dense(
            3, kernel_regularizer=prior, bias_regularizer=prior, dtype=dtype
        )(x)
    model = keras.Model(inputs, x)
    for name, layer in zip(ALL, model.layers[1:], strict=True):
        layer.bias.assign([0.5, -1.0, 2.0])
        kernel, bias = layer.losses
        for loss, w in ((kernel, layer.kernel), (bias, layer.bias)):
            log_prob = np.sum(make(name).log_prob(w.numpy().astype("float32")))
            assert loss.dtype == tf.float32
            np.testing.assert_allclose(loss, -log_prob / 8, rtol=1e-5)
    model.save(tmp_path / "m.keras")
    loaded = keras.models.load_model(tmp_path / "m.keras")
    assert len(model.losses) == len(loaded.losses) == 2 * len(ALL)
    np.testing.assert_array_equal(model.losses, loaded.losses)


def test_regularizer_adds_the_negative_log_density_over_the_counted_n():
    prior = priors.Normal(0.5)
    model = bdl.Sequential(
        [keras.Input((3,)), keras.layers.Dense(2, kernel_regularizer=prior)]
    )
    model.compile(keras.optimizers.SGD(0.0), "mse")
    loss = model.fit(X, X[:, :2], verbose=0).history["loss"][0]
    kernel = model.layers[0].kernel.numpy()
    error = np.mean((X @ kernel - X[:, :2]) ** 2)
    log_prob = tf.reduce_sum(tfd.Normal(0.0, 0.5).log_prob(kernel))
    assert loss == pytest.approx(float(error - log_prob / 2), rel=1e-5)


@pytest.mark.parametrize("name", ALL)
def test_sampler_takes_the_prior_for_variables_of_any_shape(name):
    # Without likelihood and noise, one step of SGLD is lr/N times the score.
    # Differences of the log density give the expected score.
    prior, size = make(name), 0.5
    values = [np.linspace(-1, 0.9, 6).reshape(3, 2), np.array([0.4, -0.7])]
    variables = [keras.Variable(v.astype("float32")) for v in values]
    sampler = bdl.SGLD(size, dataset_size=4, temperature=0.0, prior=prior)
    sampler.apply([tf.zeros(v.shape) for v in variables], variables)
    for value, variable in zip(values, variables, strict=True):
        step = 1e-3 * np.eye(value.size).reshape(-1, *value.shape)
        score = [
            np.sum(prior.log_prob((value + s).astype("float32")))
            - np.sum(prior.log_prob((value - s).astype("float32")))
            for s in step
        ] / np.float32(2e-3)
        moved = (variable.numpy() - value) * 4 / size
        np.testing.assert_allclose(
            moved, score.reshape(value.shape), rtol=1e-2, atol=2e-2
        )


def test_regularizer_of_a_layer_replaces_the_prior_of_the_sampler():
    model = keras.Sequential(
        [keras.Input((3,)), keras.layers.Dense(2, bias_regularizer="l2")]
    )
    sampler = bdl.SGLD(temperature=0.0, dataset_size=4, prior=make("Normal"))
    model.compile(sampler, "mse")
    model.layers[0].bias.assign([1.0, -1.0])
    kernel = model.layers[0].kernel.numpy()
    zeros = [tf.zeros(v.shape) for v in model.trainable_variables]
    sampler.apply(zeros, model.trainable_variables)
    assert (model.layers[0].kernel.numpy() != kernel).all()
    np.testing.assert_array_equal(model.layers[0].bias, [1.0, -1.0])


@pytest.mark.parametrize("name", ALL)
def test_sampler_is_saved_with_its_prior(name):
    sampler = bdl.ATMC(dataset_size=4, prior=make(name))
    revived = keras.saving.deserialize_keras_object(
        keras.saving.serialize_keras_object(sampler)
    )
    assert type(revived.prior) is type(sampler.prior)
    assert revived.prior.get_config() == sampler.prior.get_config()


def test_default_prior_of_a_sampler_is_as_wide_as_its_documentation_says():
    inputs = keras.Input((5,))
    x = keras.layers.Embedding(40, 6)(inputs)
    x = keras.layers.Conv1D(7, 3)(x)
    x = keras.layers.LayerNormalization()(x)
    outputs = keras.layers.Dense(2, kernel_regularizer="l2")(x)
    model = keras.Model(inputs, outputs)
    # A step of SGLD without likelihood and noise is rate / n times the score.
    rate, n = 0.5, 8
    sampler = bdl.SGLD(rate, dataset_size=n, temperature=0.0)
    variables = model.trainable_variables
    before = [np.full(v.shape, 0.5, "float32") for v in variables]
    model.set_weights(before)
    sampler.build(variables)
    sampler.apply([tf.zeros(v.shape) for v in variables], variables)
    # table, kernel and bias, scale and center, kernel and bias of `Dense`
    precisions = [1, 6 * 3 / 8, 1, 1, 1, 0, 1]
    for v, w, precision in zip(variables, before, precisions, strict=True):
        np.testing.assert_allclose(v, w * (1 - rate / n * precision), rtol=1e-5)


def test_sampler_uses_the_density_of_a_subclass_of_normal():
    class Student(priors.Normal):
        def log_prob(self, x):
            return tfd.StudentT(3.0, 0.0, 1.0).log_prob(x)

    w = keras.Variable([1.0, -2.0])
    sampler = bdl.SGLD(1.0, dataset_size=1, temperature=0.0, prior=Student())
    sampler.apply([tf.zeros(2)], [w])
    # The score is -4 w / (3 + w^2): a step moves 1 to 0 and -2 to -6 / 7.
    np.testing.assert_allclose(w, [0.0, -6 / 7], atol=1e-6)


@pytest.mark.parametrize("prior", ["default", None])
def test_sampler_is_saved_with_its_default_or_flat_prior(prior):
    sampler = bdl.ATMC(dataset_size=4, prior=prior)
    revived = keras.saving.deserialize_keras_object(
        keras.saving.serialize_keras_object(sampler)
    )
    assert revived.prior == prior
    with pytest.raises(ValueError, match="`prior` must be `None`, one of"):
        bdl.ATMC(prior="he_normal")


def test_sampler_with_a_prior_that_cannot_be_saved_says_so(tmp_path):
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)])
    normal = tfd.Normal(0.0, 1.0)
    prior = types.SimpleNamespace(
        log_prob=normal.log_prob, sample=normal.sample
    )
    model.compile(bdl.SGLD(dataset_size=4, prior=prior), "mse")
    with pytest.raises(
        ValueError, match="only if its `prior` has `get_config`"
    ):
        model.save(tmp_path / "m.keras")


@pytest.mark.parametrize(
    ("name", "argument", "value"),
    [
        ("GroupLaplace", "scale", 0.0),
        ("HeNormal", "bias_stddev", 0.0),
        ("HeNormal", "gain", -1.0),
        ("Laplace", "mean", float("nan")),
        ("Laplace", "scale", -1.0),
        ("Normal", "mean", "0"),
        ("Normal", "stddev", float("nan")),
        ("ScaleMixture", "probability_1", 1.0),
        ("ScaleMixture", "stddev_1", float("inf")),
        ("ScaleMixture", "stddev_2", 0),
        ("SymmetricGamma", "concentration", 0.0),
        ("SymmetricGamma", "scale", None),
    ],
)
def test_wrong_number_is_refused(name, argument, value):
    with pytest.raises(ValueError, match=f"`{argument}` must be"):
        class_of(name)(**{argument: value})
