"""The layer gives the sets of NumPy, also from saved and exported models."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import keras_bdl as bdl
from keras_bdl.conformal import APS
from keras_bdl.conformal import LAC
from keras_bdl.conformal import RAPS
from keras_bdl.conformal import AdaptiveConformal
from keras_bdl.conformal import ConformalizedQuantiles
from keras_bdl.conformal import ConformalLayer
from keras_bdl.conformal import NormalizedResiduals
from keras_bdl.conformal import RiskControl
from keras_bdl.prediction import ClassificationPrediction
from tests.conformal.helpers import classified
from tests.conformal.helpers import regressed
from tests.helpers import cross_entropy

CALIBRATION, TEST = classified(200), classified(300, seed=1)


def in_a_layer(method, inputs):
    layer = ConformalLayer(method)
    restored = ConformalLayer.from_config(layer.get_config())
    results = [
        keras.tree.map_structure(np.array, one(inputs))
        for one in (layer, restored)
    ]
    for ours, theirs in zip(*map(keras.tree.flatten, results), strict=True):
        np.testing.assert_array_equal(ours, theirs)
    return results[0]


@pytest.mark.filterwarnings("ignore:Coverage .* is only kept by sets")
def test_deterministic_sets_equal_those_of_numpy():
    infinite = classified(6)
    for method in (
        LAC(),
        LAC(per_class=True),
        APS(randomized=False),
        APS(randomized=False, per_class=True),
        RAPS(randomized=False, penalty=0.1, free_ranks=1),
    ):
        for data in (CALIBRATION, infinite):
            method.fit(data, coverage=0.9)
            # Test rows are in general no ties with calibration rows.
            np.testing.assert_array_equal(
                in_a_layer(method, TEST.mean.astype("float32")),
                method(TEST).membership,
            )
    control = RiskControl().fit(classified(200, classes=2), risk=0.2)
    test = classified(50, classes=2, seed=1)
    np.testing.assert_array_equal(
        in_a_layer(control, test.mean.astype("float32")),
        control(test).membership,
    )


def test_calibration_rows_at_the_cutoff_stay_inside_in_float32():
    for method in (LAC(), APS(randomized=False)):
        method.fit(CALIBRATION)
        sets = in_a_layer(method, CALIBRATION.mean.astype("float32"))
        assert (sets >= method(CALIBRATION).membership).all()


def test_sums_of_many_classes_lose_no_class_at_the_cutoff():
    logits = np.random.default_rng(0).normal(size=(50, 20_000))
    probs = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    probs = probs.astype("float32")
    p = ClassificationPrediction(np.log(probs), y=probs.argmin(-1))
    for method in (APS(randomized=False), RAPS(randomized=False, penalty=0.0)):
        # The label is the last class, with a score of 1.
        method.fit(p, coverage=0.5)
        assert method.cutoff.values == 1.0 and in_a_layer(method, probs).all()


def test_randomised_sets_are_inside_those_of_the_layer():
    for method in (APS(), RAPS(penalty=0.1, free_ranks=1)):
        method.fit(CALIBRATION)
        sets = in_a_layer(method, TEST.mean.astype("float32"))
        members = method(TEST).membership
        assert (sets >= members).all() and (sets.sum(1) >= 1).all()
        # One class more at most.
        assert (sets.sum(1) - members.sum(1) <= 1).all()


def test_intervals_equal_those_of_numpy():
    p = regressed(60, samples=5)
    inputs = {
        "mean": p.mean,
        "stddev": p.stddev,
        "samples": np.asarray(p.samples),
    }
    inputs = {name: v.astype("float32") for name, v in inputs.items()}
    for method in (
        NormalizedResiduals(),
        ConformalizedQuantiles(source="gaussian"),
        ConformalizedQuantiles(source="samples"),
    ):
        method.fit(p, coverage=0.8)
        found, exact = in_a_layer(method, inputs), method(p)
        np.testing.assert_allclose(found["lower"], exact.lower, atol=2e-5)
        np.testing.assert_allclose(found["upper"], exact.upper, atol=2e-5)
        assert ((found["lower"] <= p.y) & (p.y <= found["upper"])).sum() >= (
            exact.contains().sum()
        )


def test_methods_without_a_fixed_cutoff_are_refused():
    with pytest.raises(ValueError, match="`method` must be a fitted"):
        ConformalLayer(AdaptiveConformal(LAC()).fit(CALIBRATION))
    with pytest.raises(RuntimeError, match="is not fitted yet"):
        ConformalLayer(LAC())
    mixture = ConformalizedQuantiles().fit(regressed(samples=3))
    with pytest.raises(ValueError, match='Fit with `source="gaussian"`'):
        ConformalLayer(mixture)({"mean": np.zeros(3)})


def test_predictive_with_sets_is_saved_and_exported(tmp_path):
    x = np.random.default_rng(0).normal(size=(90, 4)).astype("float32")
    y = (x[:, 0] > 0).astype("int32") + (x[:, 1] > 0)
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3)])
    model.compile("sgd", cross_entropy())
    weights = model.get_weights()
    posterior = bdl.posteriors.Ensemble([weights, [2 * w for w in weights]])
    prediction = bdl.predict(model, x, posterior, verbose=0)
    conformal = RAPS(randomized=False).fit(prediction, y)
    predictive = bdl.PosteriorPredictive(model, posterior)
    inputs = keras.Input((4,))
    outputs = predictive(inputs)
    sets = ConformalLayer(conformal)(outputs["mean"])
    served = keras.Model(inputs, {**outputs, "set": sets})
    expected = conformal(prediction).membership
    served.save(tmp_path / "net.keras")
    loaded = keras.models.load_model(tmp_path / "net.keras")
    np.testing.assert_array_equal(loaded.predict(x, verbose=0)["set"], expected)
    served.export(tmp_path / "net", verbose=False)
    exported = tf.saved_model.load(str(tmp_path / "net"))
    np.testing.assert_array_equal(exported.serve(x)["set"], expected)


def test_adaptive_sets_in_litert_equal_those_of_numpy(tmp_path):
    package = pytest.importorskip(
        "ai_edge_litert.interpreter",
        reason='python -m pip install -e ".[export]"',
    )
    method = RAPS(randomized=False, penalty=0.1, free_ranks=1).fit(CALIBRATION)
    inputs = keras.Input((5,))
    served = keras.Model(inputs, ConformalLayer(method)(inputs))
    path = str(tmp_path / "sets.tflite")
    served.export(path, format="litert", verbose=False)
    interpreter = package.Interpreter(path)
    ours, theirs = (
        details[0]["index"]
        for details in (
            interpreter.get_input_details(),
            interpreter.get_output_details(),
        )
    )
    interpreter.resize_tensor_input(ours, TEST.log_mean.shape)
    interpreter.allocate_tensors()
    interpreter.set_tensor(ours, TEST.mean.astype("float32"))
    interpreter.invoke()
    np.testing.assert_array_equal(
        interpreter.get_tensor(theirs), method(TEST).membership
    )
