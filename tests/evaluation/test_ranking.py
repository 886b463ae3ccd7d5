import itertools

import numpy as np
import pytest
import scipy.integrate
import sklearn.metrics

from keras_bdl.evaluation._ranking import FRACTIONS
from keras_bdl.evaluation._ranking import auroc
from keras_bdl.evaluation._ranking import average_precision
from keras_bdl.evaluation._ranking import checked_fractions
from keras_bdl.evaluation._ranking import fpr_at_tpr
from keras_bdl.evaluation._ranking import referral_accuracy
from keras_bdl.evaluation._ranking import referral_auroc
from keras_bdl.evaluation._ranking import risk_coverage_areas
from keras_bdl.evaluation._ranking import uncertainty_of
from keras_bdl.prediction import ClassificationPrediction


def make_scores(seed=0, n=300):
    """Labels and scores on a coarse grid: nearly every score is tied."""
    rng = np.random.default_rng(seed)
    label = rng.integers(2, size=n)
    return label, np.round(rng.normal(label, 1.0), 0 if seed % 2 else 1)


@pytest.mark.parametrize("seed", range(4))
def test_ties_count_as_in_scikit_learn(seed):
    label, score = make_scores(seed)
    positive, negative = score[label == 1], score[label == 0]
    np.testing.assert_allclose(
        auroc(positive, negative), sklearn.metrics.roc_auc_score(label, score)
    )
    np.testing.assert_allclose(
        average_precision(positive, negative),
        sklearn.metrics.average_precision_score(label, score),
    )
    fpr, tpr, _ = sklearn.metrics.roc_curve(
        label, score, drop_intermediate=False
    )
    np.testing.assert_allclose(
        fpr_at_tpr(positive, negative, tpr=0.95), fpr[tpr >= 0.95].min()
    )


def test_weights_count_as_in_scikit_learn():
    label, score = make_scores()
    weight = np.random.default_rng(1).integers(3, size=len(label)) / 2
    one, zero = label == 1, label == 0
    np.testing.assert_allclose(
        auroc(
            score[one],
            score[zero],
            positive_weights=weight[one],
            negative_weights=weight[zero],
        ),
        sklearn.metrics.roc_auc_score(label, score, sample_weight=weight),
    )


def test_fpr_needs_exactly_the_wanted_share():
    # 19 of 20 positives score above every negative.
    positive, negative = [2.0] * 19 + [0.0], [1.0] * 4
    assert fpr_at_tpr(positive, negative, tpr=0.95) == 0.0
    assert fpr_at_tpr(positive, negative, tpr=0.951) == 1.0


@pytest.mark.parametrize("score", [auroc, average_precision, fpr_at_tpr])
def test_score_of_one_class_is_nan(score):
    assert np.isnan(score([1.0, 2.0], []))
    assert np.isnan(score([], [1.0]))
    assert np.isnan(score([], []))


@pytest.mark.parametrize("score", [auroc, average_precision, fpr_at_tpr])
def test_nan_is_refused(score):
    with pytest.raises(ValueError, match="must not hold NaN"):
        score([1.0, np.nan], [0.0])


def test_the_most_uncertain_are_referred_first():
    # The two wrong ones are the most and the third most uncertain of ten.
    uncertainty = np.arange(10.0)
    correct = [1, 1, 1, 1, 1, 1, 1, 0, 1, 0]
    np.testing.assert_allclose(
        referral_accuracy(uncertainty, correct, fractions=FRACTIONS),
        [0.8, 8 / 9, 7 / 8, 1.0],
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
    actual = referral_auroc(uncertainty, score, y, fractions=FRACTIONS)
    np.testing.assert_allclose(actual, expected)


def test_auroc_of_one_remaining_class_is_not_defined():
    areas = referral_auroc(
        [0, 1, 2, 3.0],
        [0.1, 0.2, 0.3, 0.9],
        [0, 0, 0, 1],
        fractions=FRACTIONS,
    )
    assert areas[0] == 1.0
    assert np.isnan(areas[-1])


def test_single_sample_is_referred_by_entropy():
    probs = [[0.9, 0.1], [0.5, 0.5]]
    single = ClassificationPrediction.from_probabilities(probs)
    several = ClassificationPrediction.from_probabilities(
        probs, expected_entropy=[0.2, 0.3], num_samples=5
    )
    used, values = uncertainty_of(single, "mutual_information")
    assert used == "entropy"
    np.testing.assert_allclose(values, [0.325083, 0.693147], rtol=1e-5)
    used, values = uncertainty_of(several, "mutual_information")
    assert used == "mutual_information"
    np.testing.assert_allclose(values, [0.125083, 0.393147], rtol=1e-5)
    with pytest.raises(ValueError, match="uncertainty='variance'"):
        uncertainty_of(several, "variance")


@pytest.mark.parametrize("fraction", [-0.1, 1.0, 30])
def test_fraction_must_leave_some_inputs(fraction):
    with pytest.raises(ValueError, match=r"`fractions\[0\]` must be a number"):
        checked_fractions([fraction])


def by_definition(errors):
    """Returns the area of one order, with a loop over the trapezoids."""
    n = len(errors)
    risk = [sum(errors[:k]) / k for k in range(1, n + 1)]
    return sum((a + b) / 2 for a, b in itertools.pairwise(risk)) / (n - 1)


def test_area_by_hand():
    # Errors by rising uncertainty 0, 1, 0: risks 0, 1/2, 1/3.
    uncertainty, correct = [0.3, 0.1, 0.2], [1, 1, 0]
    expected = ((0 + 1 / 2) / 2 + (1 / 2 + 1 / 3) / 2) / 2
    # The best order has the risks 0, 0, 1/3.
    np.testing.assert_allclose(
        risk_coverage_areas(uncertainty, correct),
        [expected, expected - (1 / 3) / 2 / 2],
    )


def test_area_of_equal_uncertainties_is_the_mean_over_their_orders():
    uncertainty = np.array([0.1, 0.2, 0.2, 0.2, 0.3])
    errors = np.array([1, 0, 1, 0, 0])
    orders = [
        by_definition([1, *errors[list(order)], 0])
        for order in itertools.permutations([1, 2, 3])
    ]
    area, _ = risk_coverage_areas(uncertainty, 1 - errors)
    np.testing.assert_allclose(area, np.mean(orders))


def test_risk_is_the_error_of_the_referral_curve():
    rng = np.random.default_rng(0)
    uncertainty, correct = rng.random(50), rng.random(50) < 0.7
    kept = np.arange(1, 51)
    accuracy = referral_accuracy(uncertainty, correct, fractions=1 - kept / 50)
    risk = 1 - np.array(accuracy)
    expected = scipy.integrate.trapezoid(risk, kept / 50) / (1 - 1 / 50)
    area, _ = risk_coverage_areas(uncertainty, correct)
    np.testing.assert_allclose(area, expected)


def test_perfect_ranking_has_no_excess():
    correct = np.array([1, 0, 1, 1, 0])
    assert risk_coverage_areas(1 - correct, correct)[1] == 0.0
    assert risk_coverage_areas(correct, correct)[1] > 0.2
    assert np.isnan(risk_coverage_areas([0.1], [1])).all()


# Hand-made cases. Torch-uncertainty 0.13 gives the same numbers.
def test_area_under_the_risk_coverage_curve():
    # Error rates of the 1, 2, 3 and 4 surest: 0, 1/2, 1/3, 1/4. Trapezoids
    # over three intervals: (1/4 + 5/12 + 7/24) / 3.
    # The best order has the error last: 0, 0, 0, 1/4.
    best = 1 / 8 / 3
    found = risk_coverage_areas([-0.9, -0.8, -0.7, -0.6], [1, 0, 1, 1])
    assert found == pytest.approx((23 / 72, 23 / 72 - best))


def test_false_positives_at_a_rate_of_true_ones():
    inside, outside = [0.9, 0.8, 0.7, 0.6], [0.85, 0.65, 0.5]
    # Three of four lie at or above 0.7, and one of three outside.
    assert fpr_at_tpr(inside, outside, tpr=0.75) == pytest.approx(1 / 3)
    # 95 % need the threshold 0.6.
    assert fpr_at_tpr(inside, outside, tpr=0.95) == pytest.approx(2 / 3)
    # Of twelve pairs, 0.9 wins three, 0.8 and 0.7 two, 0.6 one.
    assert auroc(inside, outside) == pytest.approx(8 / 12)
    # With a tie at the threshold, both outside count.
    assert fpr_at_tpr([0.9, 0.7], [0.7, 0.7, 0.1], tpr=0.95) == (
        pytest.approx(2 / 3)
    )
