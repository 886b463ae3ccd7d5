import itertools

import numpy as np
import pytest
import sklearn.metrics

from keras_bdl.evaluation import referral_accuracy
from keras_bdl.evaluation import referral_auroc
from keras_bdl.evaluation import uncertainty_of
from keras_bdl.prediction import ClassificationPrediction


def test_the_most_uncertain_are_referred_first():
    # The two wrong ones are the most and the third most uncertain of ten.
    uncertainty = np.arange(10.0)
    correct = [1, 1, 1, 1, 1, 1, 1, 0, 1, 0]
    np.testing.assert_allclose(
        referral_accuracy(uncertainty, correct), [0.8, 8 / 9, 7 / 8, 1.0]
    )


def test_tied_inputs_remain_with_equal_partial_weights():
    uncertainty, correct = np.array([0, 1, 1, 1, 1, 2.0]), [1, 1, 0, 0, 1, 0]
    # Half are referred: the last one and two of the four that are tied.
    every_way = [
        np.mean([1, *(correct[i] for i in kept)])
        for kept in itertools.combinations(range(1, 5), 2)
    ]
    np.testing.assert_allclose(
        referral_accuracy(uncertainty, correct, fractions=[0.5]),
        [np.mean(every_way)],
    )


def test_auroc_is_computed_on_the_remaining_inputs():
    rng = np.random.default_rng(0)
    y, score = rng.integers(2, size=200), rng.uniform(size=200)
    uncertainty = rng.uniform(size=200)
    order = np.argsort(uncertainty)
    expected = [
        sklearn.metrics.roc_auc_score(y[order[:n]], score[order[:n]])
        for n in (200, 180, 160, 140)
    ]
    np.testing.assert_allclose(referral_auroc(uncertainty, score, y), expected)


def test_auroc_of_one_remaining_class_is_not_defined():
    areas = referral_auroc([0, 1, 2, 3.0], [0.1, 0.2, 0.3, 0.9], [0, 0, 0, 1])
    assert areas[0] == 1.0
    assert np.isnan(areas[-1])


def test_single_sample_is_referred_by_entropy():
    probs = [[0.9, 0.1], [0.5, 0.5]]
    single = ClassificationPrediction.from_probabilities(probs)
    several = ClassificationPrediction.from_probabilities(
        probs, expected_entropy=[0.2, 0.3], num_samples=5
    )
    used, values = uncertainty_of(single)
    assert used == "entropy"
    np.testing.assert_allclose(values, [0.325083, 0.693147], rtol=1e-5)
    used, values = uncertainty_of(several)
    assert used == "mutual_information"
    np.testing.assert_allclose(values, [0.125083, 0.393147], rtol=1e-5)
    with pytest.raises(ValueError, match="uncertainty='variance'"):
        uncertainty_of(several, "variance")


@pytest.mark.parametrize("fraction", [-0.1, 1.0, 30])
def test_fraction_must_leave_some_inputs(fraction):
    with pytest.raises(ValueError, match=r"`fractions\[0\]` must be a number"):
        referral_accuracy([1.0, 2.0], [0, 1], fractions=[fraction])
