"""Hand-made cases. Torch-uncertainty 0.13 gives the same numbers."""

import numpy as np
import pytest

from keras_bdl.evaluation import aurc
from keras_bdl.evaluation import auroc
from keras_bdl.evaluation import brier_score
from keras_bdl.evaluation import classwise_calibration_error
from keras_bdl.evaluation import excess_aurc
from keras_bdl.evaluation import expected_calibration_error
from keras_bdl.evaluation import fpr_at_tpr
from keras_bdl.evaluation import maximum_calibration_error

CONFIDENCE = np.array([0.9, 0.8, 0.7, 0.6])
CORRECT = np.array([1, 0, 1, 1])
# Probabilities of three classes, and labels.
PROBS = np.array(
    [[0.2, 0.7, 0.1], [0.6, 0.3, 0.1], [0.1, 0.1, 0.8], [0.3, 0.3, 0.4]]
)
LABELS = [1, 1, 2, 0]


def test_area_under_the_risk_coverage_curve():
    # Error rates of the 1, 2, 3 and 4 surest: 0, 1/2, 1/3, 1/4. Trapezoids
    # over three intervals: (1/4 + 5/12 + 7/24) / 3.
    assert aurc(-CONFIDENCE, CORRECT) == pytest.approx(23 / 72)
    # The best order has the error last: 0, 0, 0, 1/4.
    best = 1 / 8 / 3
    assert excess_aurc(-CONFIDENCE, CORRECT) == pytest.approx(23 / 72 - best)


def test_calibration_errors_of_equal_width():
    # Bins of width 1/4: one input at 0.7 and 0.6, with gaps of -0.35 in
    # the mean; two at 0.9 and 0.8, half of them correct, with 0.35.
    kwargs = {"num_bins": 4}
    found = expected_calibration_error(CONFIDENCE, CORRECT, **kwargs)
    assert found == pytest.approx(0.5 * 0.35 + 0.5 * 0.35)
    # Bins of width 1/3: 0.6 alone has the gap -0.4; the mean confidence of
    # the others is 0.8, and two of three are correct.
    kwargs = {"num_bins": 3}
    found = expected_calibration_error(CONFIDENCE, CORRECT, **kwargs)
    assert found == pytest.approx(0.25 * 0.4 + 0.75 * (0.8 - 2 / 3))
    assert maximum_calibration_error(
        CONFIDENCE, CORRECT, **kwargs
    ) == pytest.approx(0.4)


def test_calibration_error_of_equal_mass():
    # Two inputs in each bin: gaps 0.85 - 0.5 and 0.65 - 1.
    found = expected_calibration_error(
        CONFIDENCE, CORRECT, num_bins=2, binning="mass"
    )
    assert found == pytest.approx(0.35)
    # One in each.
    found = expected_calibration_error(
        CONFIDENCE, CORRECT, num_bins=4, binning="mass"
    )
    assert found == pytest.approx((0.1 + 0.8 + 0.3 + 0.4) / 4)


def test_calibration_error_of_every_class():
    # Two bins. Class 0: 0.2, 0.1, 0.3 with one hit, and 0.6 with none.
    zero = 0.75 * abs(0.2 - 1 / 3) + 0.25 * 0.6
    # Class 1: 0.3, 0.1, 0.3 with one hit, and 0.7 with one.
    one = 0.75 * abs(0.7 / 3 - 1 / 3) + 0.25 * 0.3
    # Class 2: 0.1, 0.1, 0.4 with none, and 0.8 with one.
    two = 0.75 * 0.2 + 0.25 * 0.2
    found = classwise_calibration_error(PROBS, LABELS, num_bins=2)
    assert found == pytest.approx((zero + one + two) / 3)


def test_brier_score_is_summed_over_the_classes():
    rows = 0.04 + 0.09 + 0.01, 0.36 + 0.49 + 0.01, 0.06, 0.49 + 0.09 + 0.16
    assert brier_score(PROBS, LABELS) == pytest.approx(sum(rows) / 4)


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
