"""Freezing a model after its training does not change its posterior."""

import keras
import numpy as np
import pytest

import keras_bdl as bdl
from tests.helpers import assert_equal
from tests.helpers import cross_entropy
from tests.helpers import predict_arguments
from tests.posteriors.networks import values

RNG = np.random.default_rng(0)
X = RNG.normal(size=(24, 4)).astype("float32")
Y = RNG.integers(0, 3, 24)


def network(dense=keras.layers.Dense, *, frozen=False):
    keras.utils.set_random_seed(1)
    model = bdl.Sequential(
        [
            keras.Input((4,)),
            dense(6, activation="tanh", name="first"),
            keras.layers.BatchNormalization(name="norm"),
            keras.layers.Dropout(0.5),
            dense(3, name="last"),
        ]
    )
    model.layers[0].trainable = not frozen
    return model


def fit(model, optimizer="sgd", *callbacks, **options):
    model.compile(optimizer, cross_entropy(), **options)
    model.fit(X, Y, batch_size=12, epochs=3, verbose=0, callbacks=callbacks)
    return model


def held(make=lambda: "adam", objective=None, **options):
    """Trains a model that holds the posterior."""

    def trained(model):
        of_model = {"objective": objective(**options)} if objective else {}
        fit(model, make(), **of_model)
        return lambda: bdl.posterior_of(model)

    return trained


def collected(make, optimizer=lambda: "sgd"):
    """Trains with a callback that has the posterior."""

    def trained(model):
        callback = make()
        fit(model, optimizer(), callback)
        return lambda: callback.posterior

    return trained


def swag():
    return bdl.SWAG(start_epoch=0, rank=2)


def swa():
    return bdl.SWA(start_epoch=0)


def laplace(model):
    posterior = bdl.fit_laplace(fit(model), (X, Y), subset="all", verbose=0)
    return lambda: posterior


def by_hand(model):
    variables = fit(model).trainable_variables
    posterior = bdl.posteriors.Gaussian(
        values(variables), [np.full(v.shape, 0.01) for v in variables]
    )
    return lambda: posterior


def ensemble(model):
    other = keras.models.clone_model(model)
    pair = bdl.posteriors.Ensemble.from_models([fit(model), other])
    return lambda: pair


def mixture(model):
    parts = collected(swag)(model), collected(swa)(model)
    return lambda: bdl.posteriors.Mixture([part() for part in parts])


METHODS = {
    "IVON": held(bdl.IVON),
    "VOGN": held(bdl.VOGN),
    "NoisyKFAC": held(bdl.NoisyKFAC),
    "TaylorVI": held(objective=bdl.objectives.TaylorVI, covariance="diagonal"),
    "SampledVI": held(objective=bdl.objectives.SampledVI, covariance="scalar"),
    "fixed SampledVI": held(
        objective=bdl.objectives.SampledVI, covariance="fixed"
    ),
    "layers": held(),
    "SWAG": collected(swag),
    "sampler": collected(
        lambda: bdl.callbacks.SampleCollector(1), lambda: bdl.SGNHT(1e-3)
    ),
    "Laplace": laplace,
    "ensemble": ensemble,
    "by hand": by_hand,
    "mixture": mixture,
    "MC dropout": lambda m: fit(m) and bdl.posteriors.MCDropout,
}


def trained(name, **options):
    layers = bdl.layers.MeanFieldDense if name == "layers" else None
    model = network(layers or keras.layers.Dense, **options)
    return model, METHODS[name](model)


def predicted(model, posterior):
    return bdl.predict(
        model, X, posterior, samples=3, batch_norm_data=X, verbose=0
    ).mean


def sampled(model, posterior, seed=0):
    with posterior.sampled(model, seed):
        return values(model.weights)


# Beside a layer that is frozen in training.
PARTLY = ["VOGN", "TaylorVI", "SWAG", "sampler", "Laplace"]


@pytest.mark.parametrize("name", METHODS)
def test_posterior_is_the_same_after_freezing(name, tmp_path):
    model, posterior = trained(name, frozen=name in PARTLY)
    before = posterior()
    before.save(tmp_path / "before.bdl")
    mean, draw = predicted(model, before), sampled(model, before)

    model.get_layer("norm").trainable = False
    np.testing.assert_array_equal(predicted(model, posterior()), mean)
    model.trainable = False
    for again in (posterior(), bdl.posteriors.load(tmp_path / "before.bdl")):
        assert_equal(sampled(model, again), draw)
        np.testing.assert_array_equal(predicted(model, again), mean)
    model.trainable = True  # also the layer that was frozen in training
    np.testing.assert_array_equal(predicted(model, before), mean)


SAVED = ["IVON", "NoisyKFAC", "TaylorVI", "fixed SampledVI"]


@pytest.mark.parametrize("name", SAVED)
def test_file_of_a_frozen_model_has_the_posterior(name, tmp_path):
    model, posterior = trained(name, frozen=True)
    draw = posterior().sample(0)
    model.trainable = False
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    assert not loaded.trainable_variables
    assert_equal(bdl.posterior_of(loaded).sample(0), draw)
    # The file of a loaded model, too.
    loaded.save(tmp_path / "again.keras")
    again = keras.models.load_model(tmp_path / "again.keras")
    assert_equal(bdl.posterior_of(again).sample(0), draw)
    # Training goes on, with the weights that were trained before.
    for layer in again.layers:
        layer.trainable = layer.name != "first"
    again.fit(X, Y, batch_size=8, verbose=0)
    assert len(bdl.posterior_of(again).mean()) == len(draw)


@pytest.mark.parametrize("name", ["VOGN", "TaylorVI"])
def test_predict_of_keras_draws_frozen_weights(name):
    make, objective = ("adam", None)
    if name == "VOGN":
        make = bdl.VOGN()
    else:
        objective = bdl.objectives.TaylorVI("diagonal", stddev=0.5)
    model = fit(network(), make, objective=objective, samples=4)
    outputs, scores = model.predict(X, verbose=0), model.evaluate(X, Y)
    at_mean = model(X).numpy()
    model.trainable = False
    model.predict_function = model.test_function = None  # traces again
    np.testing.assert_array_equal(model.predict(X, verbose=0), outputs)
    assert model.evaluate(X, Y, verbose=0) == scores
    assert np.abs(outputs - at_mean).max() > 1e-3


def test_exact_links_cover_frozen_layers(tmp_path):
    model, posterior = trained("Laplace")
    options = predict_arguments(link="probit", outputs=("mean",))
    p = bdl.predict(
        model,
        X,
        posterior(),
        options=bdl.prediction.PredictOptions(link="probit"),
        verbose=0,
    )
    before = bdl.PosteriorPredictive(model, posterior(), **options)
    model.trainable = False
    # A traced program could hide the flags.
    model.compile("sgd", cross_entropy())
    again = bdl.predict(
        model,
        X,
        posterior(),
        options=bdl.prediction.PredictOptions(link="probit"),
        verbose=0,
    )
    np.testing.assert_array_equal(again.mean, p.mean)
    after = bdl.PosteriorPredictive(model, posterior(), **options)
    for served in (before, after):
        np.testing.assert_allclose(served(X)["mean"], p.mean, atol=1e-6)
    after.save(tmp_path / "served.keras")
    loaded = keras.models.load_model(tmp_path / "served.keras")
    np.testing.assert_allclose(loaded(X)["mean"], p.mean, atol=1e-6)


def test_exact_links_cover_frozen_variational_layers():
    layer = bdl.layers.MeanFieldDense(2, dataset_size=9)
    model = keras.Sequential([keras.Input((4,)), layer])
    options = {"task": "regression", "linearized": True, "link": "identity"}
    layer.trainable = False
    p = bdl.predict(model, X, verbose=0, **predict_arguments(**options))
    kernel, bias = (
        np.square(q.distribution().stddev) for q in layer.weight_posteriors
    )
    expected = X**2 @ kernel + bias
    np.testing.assert_allclose(p.variance_between, expected, rtol=1e-4)


def test_served_model_of_a_frozen_network_stores_half_precision():
    model, posterior = trained("SWAG")
    options = {"samples": 2, "weights_dtype": "bfloat16"}
    dtypes = []
    for trainable in (True, False):
        model.trainable = trainable
        served = bdl.PosteriorPredictive(
            model, posterior(), batch_norm_data=X, **options
        )
        dtypes.append([w.dtype for w in served.weights])
    assert dtypes[0] == dtypes[1]
    assert "bfloat16" in dtypes[0]


def test_clone_that_is_frozen_takes_the_posterior():
    model, posterior = trained("VOGN")
    mean = predicted(model, posterior())
    clone = keras.models.clone_model(model)
    clone.set_weights(model.get_weights())
    clone.trainable = False
    clone.compile("sgd", cross_entropy())
    np.testing.assert_array_equal(predicted(clone, posterior()), mean)


def test_weights_frozen_before_training_are_not_in_the_posterior(tmp_path):
    model, posterior = trained("VOGN")
    assert len(posterior().mean()) == 6
    # A fresh compile: the posterior is that of the new training.
    model.layers[0].trainable = False
    assert len(fit_again(model).mean()) == 4
    # An optimizer is built at `compile`, before the layers are frozen.
    model = network()
    model.compile(bdl.VOGN(), cross_entropy())
    model.layers[0].trainable = False
    model.fit(X, Y, batch_size=8, epochs=2, verbose=0)
    found = bdl.posterior_of(model)
    assert len(found.mean()) == 4
    for save, load in (
        (model.save, keras.models.load_model),
        (model.save_weights, None),
    ):
        path = str(tmp_path / ("model.keras" if load else "a.weights.h5"))
        save(path)
        if load:
            other = load(path)
        else:
            other = network()
            other.compile(bdl.VOGN(dataset_size=24), cross_entropy())
            other.layers[0].trainable = False
            other.load_weights(path)
        other.trainable = False
        assert_equal(bdl.posterior_of(other).sample(0), found.sample(0))


def test_weights_load_into_a_model_that_is_not_compiled(tmp_path):
    network().save_weights(tmp_path / "a.weights.h5")
    network().load_weights(tmp_path / "a.weights.h5")


def fit_again(model):
    return bdl.posterior_of(fit(model, bdl.VOGN()))


def test_other_frozen_layers_are_named_as_the_cause():
    model = network(frozen=True)
    posterior = collected(swag)(model)()
    posterior.trained_weights = None  # as in a file of an older version
    model.trainable = False
    with pytest.raises(ValueError, match="freeze the layers that were frozen"):
        bdl.predict(model, X, posterior, batch_norm_data=X, verbose=0)
