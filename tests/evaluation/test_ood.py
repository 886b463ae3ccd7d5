import numpy as np
import pytest
import scipy.stats
import sklearn.metrics

from keras_bdl.evaluation import entropy_divergence
from keras_bdl.evaluation import ood_detection
from keras_bdl.evaluation import ood_scores
from keras_bdl.prediction import ClassificationPrediction


def make_prediction(alpha, n, num_samples=4, seed=0):
    rng = np.random.default_rng(seed)
    samples = rng.dirichlet(np.full(3, alpha), size=(num_samples, n))
    return ClassificationPrediction.from_probabilities(
        samples.mean(0),
        expected_entropy=scipy.stats.entropy(samples, axis=-1).mean(0),
        num_samples=num_samples,
    )


def test_detection_agrees_with_scikit_learn():
    rng = np.random.default_rng(0)
    inside, outside = rng.normal(size=80), rng.normal(1.0, size=50)
    scores = ood_detection(inside, outside)
    known = np.repeat([1, 0], [80, 50])
    uncertainty = np.concatenate([inside, outside])
    fpr, tpr, _ = sklearn.metrics.roc_curve(
        known, -uncertainty, drop_intermediate=False
    )
    expected = {
        "auroc": sklearn.metrics.roc_auc_score(known, -uncertainty),
        "aupr_in": sklearn.metrics.average_precision_score(known, -uncertainty),
        "aupr_out": sklearn.metrics.average_precision_score(
            1 - known, uncertainty
        ),
        "fpr95": fpr[tpr >= 0.95].min(),
    }
    assert scores.keys() == expected.keys()
    for name, value in expected.items():
        np.testing.assert_allclose(scores[name], value, err_msg=name)


def test_every_measure_is_scored_by_its_own_values():
    known, unknown = make_prediction(0.3, 60), make_prediction(2.0, 40)
    scores = ood_scores(known, unknown)
    for measure, sign in (
        ("confidence", 1),
        ("entropy", -1),
        ("mutual_information", -1),
    ):
        values = [getattr(p, measure) for p in (known, unknown)]
        expected = sklearn.metrics.roc_auc_score(
            np.repeat([1, 0], [60, 40]), sign * np.concatenate(values)
        )
        name = "max_probability" if measure == "confidence" else measure
        np.testing.assert_allclose(scores[name]["auroc"], expected)


def test_single_sample_has_no_mutual_information():
    scores = ood_scores(make_prediction(0.3, 9), make_prediction(2, 9, 1))
    assert all(np.isnan(v) for v in scores["mutual_information"].values())
    assert not any(np.isnan(v) for v in scores["entropy"].values())


def test_divergence_is_the_sum_of_both_directions():
    rng = np.random.default_rng(0)
    inside = np.log(5) * rng.beta(1, 4, size=400)
    outside = np.log(5) * rng.beta(3, 2, size=300)
    p, q = (
        np.histogram(h, bins=np.linspace(0, np.log(5), 31))[0] / len(h) + 1e-7
        for h in (inside, outside)
    )
    # SciPy normalises the smoothed shares itself.
    expected = scipy.stats.entropy(p, q) + scipy.stats.entropy(q, p)
    actual = entropy_divergence(inside, outside, num_classes=5, num_bins=30)
    np.testing.assert_allclose(actual, expected)


def test_divergence_keeps_entropies_that_rounding_put_outside():
    highest = np.log(4)
    a = entropy_divergence([-1e-7, 0.5], [highest + 1e-7, 0.5], num_classes=4)
    b = entropy_divergence([0.0, 0.5], [highest, 0.5], num_classes=4)
    assert a == b > 0
    assert entropy_divergence([0.1, 0.5], [0.5, 0.1], num_classes=4) == 0.0


def test_nan_is_refused():
    with pytest.raises(ValueError, match="`outside` must not hold NaN"):
        ood_detection([1.0], [np.nan])
    with pytest.raises(ValueError, match="`inside` must hold at least one"):
        entropy_divergence([], [1.0], num_classes=4)
