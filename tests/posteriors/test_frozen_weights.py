"""Posteriors over the weights that are trained beside frozen ones."""

import keras
import numpy as np
import pytest

import keras_bdl as bdl
from tests.helpers import cross_entropy
from tests.helpers import own_garbage

RNG = np.random.default_rng(0)
X = RNG.normal(size=(24, 4)).astype("float32")
Y = RNG.integers(0, 3, 24)


def pretrained(seed=1):
    """A frozen layer, a layer with an adapter, and a head."""
    keras.utils.set_random_seed(seed)
    model = bdl.Sequential(
        [
            keras.Input((4,)),
            keras.layers.Dense(6, "tanh", trainable=False),
            keras.layers.Dense(6, "tanh"),
            keras.layers.BatchNormalization(),
            keras.layers.Dense(3),
        ]
    )
    model.layers[1].enable_lora(1)
    model.compile("sgd", cross_entropy())
    return model


def fit(model, optimizer="sgd", *callbacks, **options):
    model.compile(optimizer, cross_entropy(), **options)
    model.fit(X, Y, batch_size=12, epochs=3, verbose=0, callbacks=callbacks)
    return model


def swag(model):
    callback = bdl.SWAG(start_epoch=0, rank=2)
    fit(model, "sgd", callback)
    return callback.posterior


def samples(model):
    callback = bdl.callbacks.SampleCollector(1, unit="epoch")
    fit(model, bdl.SGNHT(1e-3), callback)
    return callback.posterior


def held(optimizer=None, objective=None):
    def posterior(model):
        fit(model, optimizer() if optimizer else "adam", objective=objective)
        return bdl.posterior_of(model)

    return posterior


def laplace(model):
    return bdl.fit_laplace(
        fit(model), (X, Y), subset="all", verbose=0
    ).with_prior_precision(2.0)


POSTERIORS = {
    "SWAG": swag,
    "samples": samples,
    "VOGN": held(bdl.VOGN),
    "Noisy K-FAC": held(bdl.NoisyKFAC),
    "Taylor VI": held(objective=bdl.objectives.TaylorVI("diagonal")),
    "Laplace": laplace,
}


@pytest.mark.parametrize("name", POSTERIORS)
def test_file_holds_what_is_trained_and_fits_no_other_base(name, tmp_path):
    model = pretrained()
    posterior = POSTERIORS[name](model)
    # Two factors and a bias, two of BatchNorm, two of the head.
    shapes = [(6,), (6, 1), (1, 6), (6,), (6,), (6, 3), (3,)]
    statistics = [(6,), (6,)] if name == "samples" else []
    assert sorted(posterior.structure.shapes) == sorted(shapes + statistics)

    path = tmp_path / "posterior.bdl"
    posterior.save(path)
    loaded = bdl.posteriors.load(path)
    options = {"samples": 3, "verbose": 0, "batch_norm_data": X}
    np.testing.assert_array_equal(
        bdl.predict(model, X, loaded, **options).mean,
        bdl.predict(model, X, posterior, **options).mean,
    )
    same = pretrained()
    np.testing.assert_array_equal(same.layers[0].kernel, model.layers[0].kernel)
    loaded.check(same)
    other = pretrained(seed=2)
    with pytest.raises(ValueError, match="with the frozen weights that it"):
        bdl.predict(other, X, loaded, **options)


def test_deep_ensemble_keeps_frozen_weights_of_each_member():
    models = [pretrained(1), pretrained(2)]
    pair = bdl.posteriors.Ensemble.from_models(models)
    p = bdl.predict(models[0], X, pair, samples=2, keep_samples=True, verbose=0)
    for k, model in enumerate(models):
        logits = model.predict(X, verbose=0)
        expected = np.array(keras.ops.softmax(logits))
        found = [np.abs(s - expected).max() for s in p.samples]
        assert min(found) < 1e-5, k


def test_adapters_that_keras_has_merged_have_no_posterior(tmp_path):
    model = fit(pretrained(), bdl.IVON())
    posterior = bdl.posterior_of(model)
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    with pytest.raises(ValueError, match="trained adapters.*is zero"):
        bdl.posterior_of(loaded)
    with pytest.raises(ValueError, match="Keras adds adapters to the kernels"):
        posterior.check(loaded)


def test_frozen_statistics_and_quantised_kernels_are_part_of_the_base():
    def base(kernel=0.0, mean=0.0):
        model = pretrained()
        model.layers[0].kernel.assign_add(kernel * np.ones((4, 6)))
        with own_garbage():  # Keras calls `gc.collect`.
            model.layers[0].quantize("int8")
        model.layers[2].trainable = False
        model.layers[2].moving_mean.assign(np.full(6, mean))
        model.compile("sgd", cross_entropy())
        return model

    posterior = swag(base())
    posterior.check(base())
    for other in (base(kernel=0.5), base(mean=5.0)):
        with pytest.raises(ValueError, match="other frozen weights"):
            posterior.check(other)


@pytest.mark.parametrize("name", ["SWAG", "samples"])
def test_collecting_other_weights_in_a_second_fit_is_refused(name):
    callback, optimizer = {
        "SWAG": (bdl.SWAG(start_epoch=0, rank=2), "sgd"),
        "samples": (
            bdl.callbacks.SampleCollector(1, unit="epoch"),
            bdl.SGNHT(1e-3),
        ),
    }[name]
    model = fit(pretrained(), optimizer, callback)
    model.layers[0].trainable = True
    with pytest.raises(ValueError, match="collect the same weights all"):
        fit(model, "sgd" if name == "SWAG" else bdl.SGNHT(1e-3), callback)


def test_samples_of_all_weights_fit_a_model_that_was_frozen_later():
    model = bdl.Sequential(
        [
            keras.Input((4,)),
            keras.layers.Dense(6, "tanh"),
            keras.layers.Dense(3),
        ]
    )
    posterior = samples(model)
    before = bdl.predict(model, X, posterior, verbose=0).mean
    model.layers[0].trainable = False
    after = bdl.predict(model, X, posterior, verbose=0).mean
    np.testing.assert_array_equal(before, after)
