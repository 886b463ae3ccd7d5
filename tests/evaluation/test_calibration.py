import numpy as np
import pytest

from keras_bdl import metrics
from keras_bdl.evaluation import calibration_bins
from keras_bdl.evaluation import expected_calibration_error
from keras_bdl.evaluation import maximum_calibration_error


def test_bins_of_equal_width_by_hand():
    confidence, correct = [0.4, 0.45, 1.0, 0.7], [1, 0, 1, 0]
    bins = calibration_bins(confidence, correct, num_bins=2)
    np.testing.assert_array_equal(bins.count, [2, 2])
    np.testing.assert_allclose(bins.confidence, [0.425, 0.85])
    np.testing.assert_allclose(bins.accuracy, [0.5, 0.5])
    ece = expected_calibration_error(confidence, correct, num_bins=2)
    mce = maximum_calibration_error(confidence, correct, num_bins=2)
    np.testing.assert_allclose([ece, mce], [(0.075 + 0.35) / 2, 0.35])


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
        results.add(
            round(
                expected_calibration_error(
                    confidence[order],
                    correct[order],
                    num_bins=20,
                    binning="mass",
                ),
                12,
            )
        )
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
    for cls, function in (
        (metrics.ExpectedCalibrationError, expected_calibration_error),
        (metrics.MaximumCalibrationError, maximum_calibration_error),
    ):
        metric = cls(binning=binning, from_logits=False)
        for part in np.array_split(np.arange(300), 7):
            metric.update_state(~correct[part], probs[part])
        np.testing.assert_allclose(
            metric.result(),
            function(probs[:, 0], correct, num_bins=20, binning=binning),
            rtol=1e-4,
        )


def test_streaming_bins_of_equal_mass_are_close_on_crowded_confidences():
    rng = np.random.default_rng(0)
    c = 1 - 0.5 * rng.beta(0.2, 2.0, size=20_000)
    correct = rng.uniform(size=c.size) < c - 0.1 * (1 - c)
    metric = metrics.ExpectedCalibrationError(binning="mass", from_logits=False)
    metric.update_state(~correct, np.stack([c, 1 - c], -1))
    exact = expected_calibration_error(c, correct, num_bins=20, binning="mass")
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
