"""A `Gaussian` inside of a list or a dictionary of losses keeps its meaning."""

import warnings

import keras
import numpy as np
import pytest

import keras_bdl as bdl

RNG = np.random.default_rng(0)
X = RNG.normal(size=(30, 3)).astype("float32")
REAL = RNG.normal(size=(30, 1)).astype("float32")
CLASSES = RNG.integers(0, 3, 30)
GAUSSIAN = bdl.likelihoods.Gaussian


def heads():
    inputs = keras.Input((3,))
    activation = bdl.likelihoods.mean_and_stddev
    outputs = {
        "reg": keras.layers.Dense(2, activation=activation, name="reg")(inputs),
        "cls": keras.layers.Dense(3, name="cls")(inputs),
    }
    model = bdl.Model(inputs, outputs)
    cross = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile("adam", {"reg": GAUSSIAN(), "cls": cross})
    model.fit(X, {"reg": REAL, "cls": CLASSES}, verbose=0)
    return model


@pytest.fixture(scope="module")
def model():
    return heads()


@pytest.mark.parametrize("task", [None, {"reg": "regression"}])
def test_each_output_has_the_moments_of_its_loss(model, task):
    prediction = bdl.predict(
        model, X, options=bdl.prediction.PredictOptions(task=task), verbose=0
    )
    outputs = model.predict(X, verbose=0)
    mean, stddev = np.split(outputs["reg"], 2, axis=-1)
    np.testing.assert_allclose(prediction["reg"].mean, mean, rtol=1e-5)
    np.testing.assert_allclose(prediction["reg"].stddev, stddev, rtol=1e-5)
    assert prediction["cls"].mean.shape == (30, 3)


def test_a_saved_predictive_keeps_the_moments(model, tmp_path):
    predictive = bdl.PosteriorPredictive(model, outputs=("mean",))
    predictive.save(tmp_path / "heads.keras")
    found = keras.models.load_model(tmp_path / "heads.keras")(X)
    assert found["reg_mean"].shape == (30, 1)
    for name, value in predictive(X).items():
        np.testing.assert_array_equal(found[name], value)


def test_evaluate_reports_on_each_output(model):
    prediction = bdl.predict(model, X, verbose=0)
    reports = bdl.evaluate(prediction, {"reg": REAL, "cls": CLASSES})
    expected = bdl.evaluate(prediction["reg"], REAL)
    assert reports["reg"].log_likelihood == expected.log_likelihood
    assert reports["cls"].nll == bdl.evaluate(prediction["cls"], CLASSES).nll


STRUCTURES = {
    "list of losses": (lambda output: output, [GAUSSIAN(0.3)], REAL),
    "list of outputs": (lambda output: [output], GAUSSIAN(0.3), REAL),
    "dictionary": (
        lambda output: {"reg": output},
        {"reg": GAUSSIAN(0.3)},
        {"reg": REAL},
    ),
}


@pytest.mark.parametrize("name", STRUCTURES)
def test_one_output_in_a_structure_is_one_output(name):
    structure, loss, y = STRUCTURES[name]
    inputs = keras.Input((3,))
    output = keras.layers.Dense(1, name="reg")(inputs)
    model = keras.Model(inputs, structure(output))
    model.compile("adam", loss)
    (prediction,) = keras.tree.flatten(bdl.predict(model, X, verbose=0))
    np.testing.assert_allclose(prediction.stddev, 0.3, rtol=1e-5)
    plain = keras.Model(inputs, output)
    plain.compile("adam", GAUSSIAN(0.3))
    for options in (
        {"prior_precision": 1.0},
        {"prior_precision": "validation", "validation_data": (X, y)},
    ):
        with warnings.catch_warnings():
            # The search may end at the end of its range.
            warnings.filterwarnings("ignore", "The best prior precision")
            posterior = bdl.fit_laplace(model, (X, y), verbose=0, **options)
            if "validation_data" in options:
                options["validation_data"] = (X, REAL)
            alone = bdl.fit_laplace(plain, (X, REAL), verbose=0, **options)
        found = bdl.predict(
            model,
            X,
            posterior,
            options=bdl.prediction.PredictOptions(link="identity"),
            verbose=0,
        )
        (found,) = keras.tree.flatten(found)
        expected = bdl.predict(
            plain,
            X,
            alone,
            options=bdl.prediction.PredictOptions(link="identity"),
            verbose=0,
        )
        np.testing.assert_allclose(found.stddev, expected.stddev, rtol=1e-4)


def test_unknown_noise_gives_one_warning():
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
    model.compile("adam", "mse")
    prediction = bdl.predict(model, X, verbose=0)
    with pytest.warns(UserWarning, match="leaves out the noise"):
        assert (prediction.stddev == 0).all()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert (prediction.stddev == 0).all()
        known = bdl.predict(
            model,
            X,
            options=bdl.prediction.PredictOptions(noise_stddev=0.5),
            verbose=0,
        )
        np.testing.assert_allclose(known.stddev, 0.5)
