import numpy as np
import pytest
import scipy.stats

from keras_bdl.evaluation import classwise_calibration_error
from keras_bdl.evaluation import expected_calibration_error
from keras_bdl.evaluation import smooth_calibration_error


def make_data(n=300, classes=4, seed=0):
    rng = np.random.default_rng(seed)
    probs = rng.dirichlet(np.full(classes, 0.5), size=n)
    probs[:5] = np.eye(classes)[0]  # exactly 0 and 1
    return probs, rng.integers(classes, size=n)


@pytest.mark.parametrize("num_bins", [1, 7, 20])
def test_classwise_error_is_the_mean_of_one_error_for_each_class(num_bins):
    probs, y = make_data()
    expected = [
        expected_calibration_error(probs[:, k], y == k, num_bins=num_bins)
        for k in range(4)
    ]
    actual = classwise_calibration_error(probs, y, num_bins=num_bins)
    np.testing.assert_allclose(actual, np.mean(expected))


def brute_force_error(confidence, correct, stddev):
    """Returns the integral of the smoothed residuals, image by image."""
    t = (np.arange(2000) + 0.5) / 2000
    images = [s * confidence + 2 * k for k in range(-1, 2) for s in (-1, 1)]
    smooth = sum(
        scipy.stats.norm.pdf(t[:, None], image, stddev) @ (correct - confidence)
        for image in images
    )
    return np.abs(smooth / len(confidence)).mean()


@pytest.mark.parametrize("accuracy", [0.3, 0.75])
def test_smooth_error_is_its_own_width_in_the_definition(accuracy):
    rng = np.random.default_rng(0)
    confidence = rng.beta(5, 2, size=200)
    correct = rng.random(200) < accuracy
    error = smooth_calibration_error(confidence, correct)
    expected = brute_force_error(confidence, correct, error)
    np.testing.assert_allclose(error, expected, rtol=1e-4)


def test_smooth_error_by_hand():
    # All residuals are -0.5 for one confidence: every width gives 0.5.
    assert smooth_calibration_error([1.0] * 4, [1, 0, 1, 0]) == pytest.approx(
        0.5, abs=1e-6
    )
    assert smooth_calibration_error([1.0] * 4, [1] * 4) < 1e-6


def test_smooth_error_does_not_jump_at_the_edge_of_a_bin():
    # Right at 0.5 + e and wrong at 0.5 - e: the edge at 0.5 parts them.
    correct = [1, 0] * 50
    apart, together = ([0.5 + e, 0.5 - e] * 50 for e in (1e-6, -1e-6))
    together = [max(c, 0.5) for c in together]
    smooth = [smooth_calibration_error(c, correct) for c in (apart, together)]
    binned = [
        expected_calibration_error(c, correct, num_bins=2)
        for c in (apart, together)
    ]
    assert abs(smooth[0] - smooth[1]) < 1e-3
    assert binned[0] - binned[1] > 0.4


@pytest.mark.parametrize(
    ("confidence", "correct", "message"),
    [
        ([0.5, 1.5], [0, 1], "`confidence` must be from 0 to 1.*1.5"),
        ([0.5, np.nan], [0, 1], "`confidence` must not hold NaN"),
        ([0.5], [0, 1], "1 confidences and 2 values"),
    ],
)
def test_wrong_confidences_are_refused(confidence, correct, message):
    with pytest.raises(ValueError, match=message):
        smooth_calibration_error(confidence, correct)
