import itertools

import numpy as np
import pytest
import scipy.integrate

from keras_bdl.evaluation import aurc
from keras_bdl.evaluation import excess_aurc
from keras_bdl.evaluation import referral_accuracy


def by_definition(errors):
    """Returns the area of one order, with a loop over the trapezoids."""
    n = len(errors)
    risk = [sum(errors[:k]) / k for k in range(1, n + 1)]
    return sum((a + b) / 2 for a, b in itertools.pairwise(risk)) / (n - 1)


def test_area_by_hand():
    # Errors by rising uncertainty 0, 1, 0: risks 0, 1/2, 1/3.
    uncertainty, correct = [0.3, 0.1, 0.2], [1, 1, 0]
    expected = ((0 + 1 / 2) / 2 + (1 / 2 + 1 / 3) / 2) / 2
    np.testing.assert_allclose(aurc(uncertainty, correct), expected)
    # The best order has the risks 0, 0, 1/3.
    np.testing.assert_allclose(
        excess_aurc(uncertainty, correct), expected - (1 / 3) / 2 / 2
    )


def test_area_of_equal_uncertainties_is_the_mean_over_their_orders():
    uncertainty = np.array([0.1, 0.2, 0.2, 0.2, 0.3])
    errors = np.array([1, 0, 1, 0, 0])
    orders = [
        by_definition([1, *errors[list(order)], 0])
        for order in itertools.permutations([1, 2, 3])
    ]
    np.testing.assert_allclose(aurc(uncertainty, 1 - errors), np.mean(orders))


def test_risk_is_the_error_of_the_referral_curve():
    rng = np.random.default_rng(0)
    uncertainty, correct = rng.random(50), rng.random(50) < 0.7
    kept = np.arange(1, 51)
    accuracy = referral_accuracy(uncertainty, correct, fractions=1 - kept / 50)
    area = scipy.integrate.trapezoid(1 - accuracy, kept / 50) / (1 - 1 / 50)
    np.testing.assert_allclose(aurc(uncertainty, correct), area)


def test_perfect_ranking_has_no_excess():
    correct = np.array([1, 0, 1, 1, 0])
    assert excess_aurc(1 - correct, correct) == 0.0
    assert excess_aurc(correct, correct) > 0.2
    assert np.isnan(aurc([0.1], [1]))


def test_other_lengths_are_refused():
    with pytest.raises(ValueError, match="1 uncertainties and 2 values"):
        aurc([0.1], [0, 1])
