import json

import numpy as np
import pytest
import sklearn.metrics

from keras_bdl import evaluate
from keras_bdl._data import _checked_inputs as row_blocks
from keras_bdl._reports import flat_numbers
from keras_bdl.prediction import ClassificationPrediction
from keras_bdl.prediction import RegressionPrediction

Y = np.random.default_rng(9).integers(3, size=60)


def make(seed=0, classes=3, n=60, **kwargs):
    probs = np.random.default_rng(seed).dirichlet([0.5] * classes, size=n)
    return ClassificationPrediction.from_probabilities(probs, **kwargs)


def test_every_severity_has_the_scores_of_its_own_report():
    shift = {
        "rotation 30": make(1),
        "rotation 10": make(2),
        "blur": [make(3), make(4)],
        "fog": {5: make(5), 0.5: make(6)},
        "night": make(7),
    }
    report = evaluate(make(), Y, shift=shift)
    found = {
        (kind, severity): i
        for kind, scores in report.shift.items()
        for i, severity in enumerate(scores["severity"])
    }
    seeds = {
        ("rotation", 10): 2,
        ("rotation", 30): 1,
        ("blur", 1): 3,
        ("blur", 2): 4,
        ("fog", 0.5): 6,
        ("fog", 5): 5,
        ("night", 1): 7,
    }
    assert list(found) == list(seeds)
    for (kind, severity), seed in seeds.items():
        alone = evaluate(make(seed), Y)
        for name in ("accuracy", "nll", "brier", "ece"):
            actual = report.shift[kind][name][found[kind, severity]]
            np.testing.assert_allclose(actual, alone[name], err_msg=name)
    assert json.loads(json.dumps(report.shift)) == report.shift
    assert "Shift: rotation\n  severity" in str(report)


def test_labels_in_the_shifted_data_come_first():
    own = Y[::-1]
    shifted = make(1, y=own)
    report = evaluate(make(), Y, shift={"fog": shifted})
    expected = sklearn.metrics.accuracy_score(own, shifted.predicted_classes)
    assert report.shift["fog"]["accuracy"] == [expected]


@pytest.mark.parametrize(
    ("shift", "message"),
    [
        (make(1), "`shift` must be a dict.*ClassificationPrediction"),
        ({"fog": make(1, classes=4)}, r"fog.*3 classes.*4 classes"),
        ({"fog": make(1, n=59)}, "59 inputs for 60 labels"),
        ({"fog": RegressionPrediction([1.0])}, r"`shift\['fog'\]` must be a"),
        ({"fog": {"x": make(1)}}, "severity of .* must be a number"),
        ({"fog": []}, "at least one prediction"),
        ({"fog 1": make(1), "fog": [make(2)]}, "two of 'fog' with severity 1"),
        (
            {"fog": ClassificationPrediction([[np.nan, 0.0, 0.0]] * 60)},
            r"`shift\['fog'\]\[1\].log_mean` must not hold NaN",
        ),
    ],
)
def test_wrong_shift_is_refused(shift, message):
    with pytest.raises(ValueError, match=message):
        evaluate(make(), Y, shift=shift)


def test_shift_of_a_regression_has_the_scores_of_its_own_report():
    rng = np.random.default_rng(0)
    y = rng.normal(size=(50, 2))
    plain, *shifted = (
        RegressionPrediction(
            y + s * rng.normal(size=y.shape),
            variance_within=np.full(y.shape, 0.25),
            variance_between=np.full(y.shape, s**2),
        )
        for s in (0.5, 1.0, 2.0)
    )
    report = evaluate(plain, y, shift={"fog": shifted})
    assert report.shift["fog"]["severity"] == [1, 2]
    for i, p in enumerate(shifted):
        alone = evaluate(p, y)
        found = {key: values[i] for key, values in report.shift["fog"].items()}
        assert found.pop("coverage") == alone.coverage[0.95]
        assert found.pop("severity") == i + 1
        assert found == {key: alone[key] for key in found}
        assert {"rmse", "log_likelihood", "crps", "num_values"} <= set(found)
    assert "95 % covers" in str(report)
    assert json.loads(json.dumps(report.shift)) == report.shift
    with pytest.raises(ValueError, match="must be a `RegressionPrediction`"):
        evaluate(plain, y, shift={"fog": make()})
    few = RegressionPrediction(np.zeros((3, 2)))
    with pytest.raises(ValueError, match=r"shift\['fog'\]\[1\].*same order"):
        evaluate(plain, y, shift={"fog": few})
    with pytest.raises(ValueError, match="`ood` must be `None` for a reg"):
        evaluate(plain, y, ood={})


def test_scores_of_classes_agree_with_scikit_learn():
    # Class 3 occurs in neither the labels nor the predictions.
    p, y = make(), np.where(Y == 1, 0, Y)
    p = ClassificationPrediction.from_probabilities(
        np.pad(p.mean, ((0, 0), (0, 1)))
    )
    report = evaluate(p, y).per_class
    expected = sklearn.metrics.precision_recall_fscore_support(
        y, p.predicted_classes, labels=range(4), zero_division=np.nan
    )
    for name, values in zip(
        ("precision", "recall", "f1", "count"), expected, strict=True
    ):
        np.testing.assert_allclose(report[name], values, err_msg=name)
    assert np.isnan(report["recall"][3]) and report["count"][1] == 0
    assert evaluate(p, y).ece_classwise == pytest.approx(np.mean(report["ece"]))


def test_blocks_of_rows_give_the_scores_of_all_rows(monkeypatch):
    p = make(1)
    one = flat_numbers(evaluate(make(), Y, ood=p, shift={"fog": p}).to_dict())
    monkeypatch.setattr(row_blocks, "BLOCK_ENTRIES", 21)
    blocks = flat_numbers(
        evaluate(make(), Y, ood=p, shift={"fog": p}).to_dict()
    )
    assert one.keys() == blocks.keys()
    for name in one.keys() - {"referral.uncertainty"}:
        np.testing.assert_allclose(
            one[name], blocks[name], atol=1e-14, err_msg=name
        )
    y_wrong = np.eye(3)[Y]
    y_wrong[-1] = 0.5
    with pytest.raises(ValueError, match="must be one-hot"):
        evaluate(make(), y_wrong)
