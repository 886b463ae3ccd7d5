import numpy as np
import pytest
import sklearn.metrics

from keras_bdl import metrics
from keras_bdl.evaluation import brier_decomposition
from keras_bdl.evaluation import brier_score


def make_data(n=500, classes=4, seed=0):
    rng = np.random.default_rng(seed)
    probs = rng.dirichlet(np.full(classes, 0.4), size=n)
    probs[:5] = np.eye(classes)[0]  # exactly 0 and 1
    return probs, rng.integers(classes, size=n)


def test_score_agrees_with_scikit_learn_and_the_streaming_metric():
    probs, y = make_data()
    expected = sklearn.metrics.brier_score_loss(
        y, probs, labels=range(4), scale_by_half=False
    )
    np.testing.assert_allclose(brier_score(probs, y), expected)
    metric = metrics.BrierScore(from_logits=False)
    metric.update_state(y, probs)
    np.testing.assert_allclose(metric.result(), expected, rtol=1e-6)


@pytest.mark.parametrize("num_bins", [1, 7, 20])
def test_parts_add_up_to_the_score(num_bins):
    probs, y = make_data()
    parts = brier_decomposition(probs, y, num_bins=num_bins)
    total = parts.reliability - parts.resolution + parts.uncertainty
    np.testing.assert_allclose(total + parts.residual, brier_score(probs, y))
    assert abs(parts.residual) > 1e-3 or num_bins > 1


def test_bins_of_a_single_value_leave_no_residual():
    rng = np.random.default_rng(0)
    p = rng.choice([0.05, 0.35, 0.8, 1.0], size=400)
    y = rng.integers(2, size=400)
    parts = brier_decomposition(np.stack([1 - p, p], -1), y, num_bins=20)
    np.testing.assert_allclose(parts.residual, 0.0, atol=1e-15)


def test_parts_by_hand():
    # Ten forecasts of 0.8 for class 1, of which 6 come true, and ten of 0.2,
    # of which 1 does. Both classes give the same numbers, hence the factor 2.
    p = np.repeat([0.8, 0.2], 10)
    y = np.repeat([1, 0, 1, 0], [6, 4, 1, 9])
    parts = brier_decomposition(np.stack([1 - p, p], -1), y)
    expected = [
        2 * (0.5 * 0.2**2 + 0.5 * 0.1**2),
        2 * (0.5 * 0.25**2 + 0.5 * 0.25**2),
        2 * 0.35 * 0.65,
        0.0,
    ]
    np.testing.assert_allclose(parts, expected, atol=1e-15)


def test_one_class_in_the_data_has_no_uncertainty():
    probs, _ = make_data()
    parts = brier_decomposition(probs, np.zeros(500))
    assert parts.uncertainty == parts.resolution == 0.0
