import numpy as np
import pytest
import scipy.stats
import sklearn.metrics

from keras_bdl import evaluate
from keras_bdl import metrics
from keras_bdl.evaluation import calibration_bins
from keras_bdl.evaluation._calibration import calibration_errors
from keras_bdl.evaluation._calibration import smooth_calibration_error
from keras_bdl.prediction import ClassificationPrediction


def make_data(n=300, classes=4, seed=0):
    rng = np.random.default_rng(seed)
    probs = rng.dirichlet(np.full(classes, 0.4), size=n)
    probs[:5] = np.eye(classes)[0]  # exactly 0 and 1
    return probs, rng.integers(classes, size=n)


def report_on(probs, y, num_bins=20):
    prediction = ClassificationPrediction.from_probabilities(probs)
    return evaluate(prediction, y, num_bins=num_bins)


def test_bins_of_equal_width_by_hand():
    confidence, correct = [0.4, 0.45, 1.0, 0.7], [1, 0, 1, 0]
    bins = calibration_bins(confidence, correct, num_bins=2)
    np.testing.assert_array_equal(bins.count, [2, 2])
    np.testing.assert_allclose(bins.confidence, [0.425, 0.85])
    np.testing.assert_allclose(bins.accuracy, [0.5, 0.5])
    errors = calibration_errors(confidence, correct, num_bins=2)
    np.testing.assert_allclose(errors, [(0.075 + 0.35) / 2, 0.35])


def test_confidence_of_exactly_one_falls_in_the_last_bin():
    bins = calibration_bins([0.96, 1.0, 0.1], [1, 0, 1], num_bins=20)
    np.testing.assert_array_equal(bins.count, [1, 2])
    np.testing.assert_allclose(bins.confidence[-1], 0.98)


def test_bins_of_equal_mass_hold_equally_many():
    confidence = np.random.default_rng(0).permutation(np.linspace(0.2, 1, 100))
    bins = calibration_bins(
        confidence, confidence > 0.5, num_bins=20, binning="mass"
    )
    np.testing.assert_array_equal(bins.count, [5] * 20)
    np.testing.assert_allclose(
        bins.confidence, np.linspace(0.2, 1, 100).reshape(20, 5).mean(1)
    )


def test_equal_confidences_stay_together_whatever_their_order():
    # Half of all confidences are exactly 1, 30 % of them wrong.
    rng = np.random.default_rng(0)
    confidence = np.concatenate([rng.uniform(0.3, 1, 50), np.ones(50)])
    correct = np.concatenate([rng.integers(2, size=50), np.arange(50) >= 15])
    results = set()
    for seed in range(3):
        order = np.random.default_rng(seed).permutation(100)
        bins = calibration_bins(
            confidence[order], correct[order], num_bins=20, binning="mass"
        )
        assert bins.count[-1] == 50
        assert bins.accuracy[-1] == 0.7
        error, _ = calibration_errors(
            confidence[order], correct[order], binning="mass"
        )
        results.add(round(error, 12))
    assert len(results) == 1


def test_a_tied_group_goes_where_its_middle_falls():
    confidence, correct = [0.6, 0.7, 0.7, 0.7], [1, 0, 0, 0]
    bins = calibration_bins(confidence, correct, num_bins=2, binning="mass")
    np.testing.assert_array_equal(bins.count, [1, 3])
    metric = metrics.ExpectedCalibrationError(
        num_bins=2, binning="mass", from_logits=False
    )
    metric.update_state([0, 1, 1, 1], [[c, 1 - c] for c in confidence])
    np.testing.assert_allclose(metric.result(), (0.4 + 3 * 0.7) / 4, rtol=1e-6)


@pytest.mark.parametrize("binning", ["width", "mass"])
def test_streaming_metrics_agree(binning):
    # Confidences that lie far enough apart for the cells of the histogram.
    c = np.random.default_rng(0).permutation(1 - np.geomspace(5e-4, 0.4, 300))
    correct = np.random.default_rng(1).uniform(size=300) < c**2
    probs = np.stack([c, 1 - c], -1).astype("float32")
    expected = calibration_errors(probs[:, 0], correct, binning=binning)
    for cls, error in zip(
        (metrics.ExpectedCalibrationError, metrics.MaximumCalibrationError),
        expected,
        strict=True,
    ):
        metric = cls(binning=binning, from_logits=False)
        for part in np.array_split(np.arange(300), 7):
            metric.update_state(~correct[part], probs[part])
        np.testing.assert_allclose(metric.result(), error, rtol=1e-4)


def test_streaming_bins_of_equal_mass_are_close_on_crowded_confidences():
    rng = np.random.default_rng(0)
    c = 1 - 0.5 * rng.beta(0.2, 2.0, size=20_000)
    correct = rng.uniform(size=c.size) < c - 0.1 * (1 - c)
    metric = metrics.ExpectedCalibrationError(binning="mass", from_logits=False)
    metric.update_state(~correct, np.stack([c, 1 - c], -1))
    exact, _ = calibration_errors(c, correct, binning="mass")
    np.testing.assert_allclose(metric.result(), exact, rtol=0.02)


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"confidence": [np.nan, 1.0]}, "`confidence` must not hold NaN"),
        ({"confidence": [], "correct": []}, "`confidence` must hold at least"),
        ({"correct": [1]}, "one value for each confidence"),
        ({"num_bins": 0}, "`num_bins` must be a positive integer"),
        ({"num_bins": 2.5}, "`num_bins` must be a positive integer"),
        ({"binning": "log"}, "`binning` must be one of"),
    ],
)
def test_wrong_input_is_refused(kwargs, message):
    good = {"confidence": [0.5, 1.0], "correct": [0, 1]}
    with pytest.raises(ValueError, match=message):
        calibration_bins(**good | kwargs)


@pytest.mark.parametrize("num_bins", [1, 7, 20])
def test_classwise_error_is_the_mean_of_one_error_for_each_class(num_bins):
    probs, y = make_data()
    expected = [
        calibration_errors(probs[:, k], y == k, num_bins=num_bins)[0]
        for k in range(4)
    ]
    actual = report_on(probs, y, num_bins).ece_classwise
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
        calibration_errors(c, correct, num_bins=2)[0] for c in (apart, together)
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


def test_score_agrees_with_scikit_learn_and_the_streaming_metric():
    probs, y = make_data()
    expected = sklearn.metrics.brier_score_loss(
        y, probs, labels=range(4), scale_by_half=False
    )
    np.testing.assert_allclose(report_on(probs, y).brier, expected)
    metric = metrics.BrierScore(from_logits=False)
    metric.update_state(y, probs)
    np.testing.assert_allclose(metric.result(), expected, rtol=1e-6)


@pytest.mark.parametrize("num_bins", [1, 7, 20])
def test_parts_add_up_to_the_score(num_bins):
    probs, y = make_data()
    report = report_on(probs, y, num_bins)
    total = report.brier_reliability - report.brier_resolution
    total += report.brier_uncertainty + report.brier_residual
    np.testing.assert_allclose(total, report.brier)
    assert abs(report.brier_residual) > 1e-3 or num_bins > 1


def test_bins_of_a_single_value_leave_no_residual():
    rng = np.random.default_rng(0)
    p = rng.choice([0.05, 0.35, 0.8, 1.0], size=400)
    y = rng.integers(2, size=400)
    report = report_on(np.stack([1 - p, p], -1), y)
    np.testing.assert_allclose(report.brier_residual, 0.0, atol=1e-15)


def test_parts_by_hand():
    # Ten forecasts of 0.8 for class 1, of which 6 come true, and ten of 0.2,
    # of which 1 does. Both classes give the same numbers, hence the factor 2.
    p = np.repeat([0.8, 0.2], 10)
    y = np.repeat([1, 0, 1, 0], [6, 4, 1, 9])
    report = report_on(np.stack([1 - p, p], -1), y)
    names = "reliability", "resolution", "uncertainty", "residual"
    parts = [report[f"brier_{name}"] for name in names]
    expected = [
        2 * (0.5 * 0.2**2 + 0.5 * 0.1**2),
        2 * (0.5 * 0.25**2 + 0.5 * 0.25**2),
        2 * 0.35 * 0.65,
        0.0,
    ]
    np.testing.assert_allclose(parts, expected, atol=1e-15)


def test_one_class_in_the_data_has_no_uncertainty():
    probs, _ = make_data()
    report = report_on(probs, np.zeros(300))
    assert report.brier_uncertainty == report.brier_resolution == 0.0


# Hand-made cases. Torch-uncertainty 0.13 gives the same numbers.
CONFIDENCE = np.array([0.9, 0.8, 0.7, 0.6])
CORRECT = np.array([1, 0, 1, 1])
# Probabilities of three classes, and labels.
PROBS = np.array(
    [[0.2, 0.7, 0.1], [0.6, 0.3, 0.1], [0.1, 0.1, 0.8], [0.3, 0.3, 0.4]]
)
LABELS = [1, 1, 2, 0]


def test_calibration_errors_of_equal_width():
    # Bins of width 1/4: one input at 0.7 and 0.6, with gaps of -0.35 in
    # the mean; two at 0.9 and 0.8, half of them correct, with 0.35.
    found = calibration_errors(CONFIDENCE, CORRECT, num_bins=4)
    assert found[0] == pytest.approx(0.5 * 0.35 + 0.5 * 0.35)
    # Bins of width 1/3: 0.6 alone has the gap -0.4; the mean confidence of
    # the others is 0.8, and two of three are correct.
    found = calibration_errors(CONFIDENCE, CORRECT, num_bins=3)
    mean = 0.25 * 0.4 + 0.75 * (0.8 - 2 / 3)
    assert found == pytest.approx((mean, 0.4))


def test_calibration_error_of_equal_mass():
    # Two inputs in each bin: gaps 0.85 - 0.5 and 0.65 - 1.
    found, _ = calibration_errors(
        CONFIDENCE, CORRECT, num_bins=2, binning="mass"
    )
    assert found == pytest.approx(0.35)
    # One in each.
    found, _ = calibration_errors(
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
    found = report_on(PROBS, LABELS, num_bins=2).ece_classwise
    assert found == pytest.approx((zero + one + two) / 3)


def test_brier_score_is_summed_over_the_classes():
    rows = 0.04 + 0.09 + 0.01, 0.36 + 0.49 + 0.01, 0.06, 0.49 + 0.09 + 0.16
    assert report_on(PROBS, LABELS).brier == pytest.approx(sum(rows) / 4)
