import numpy as np
import pytest

from keras_bdl import conformal
from keras_bdl.conformal import APS
from keras_bdl.conformal import LAC
from keras_bdl.conformal import AdaptiveConformal
from keras_bdl.conformal import NormalizedResiduals
from keras_bdl.prediction import RegressionPrediction
from tests.conformal.helpers import classified
from tests.conformal.helpers import regressed
from tests.conformal.helpers import rows


def series(n=400, seed=0):
    """Residuals that grow tenfold in the middle."""
    rng = np.random.default_rng(seed)
    scale = np.where(np.arange(n) < n // 2, 1.0, 10.0)
    return RegressionPrediction(
        np.zeros(n),
        variance_within=np.ones(n),
        y=scale * rng.standard_normal(n),
    )


@pytest.mark.parametrize("window", [None, 30])
def test_levels_and_intervals_are_those_of_a_loop(window):
    calibration, p = regressed(50), series(200)
    adaptive = AdaptiveConformal(
        NormalizedResiduals(), step_size=0.0437, window=window
    )
    adaptive.fit(calibration, coverage=0.8)
    intervals = adaptive.update(p)
    scores = list(np.abs(calibration.y - calibration.mean) / calibration.stddev)
    miss_rate = 0.2
    for t in range(200):
        known = sorted(scores[-window:] if window else scores)
        k = int(np.ceil((len(known) + 1) * (1 - miss_rate)))
        radius = (
            np.inf if k > len(known) else known[k - 1] if k > 0 else -np.inf
        )
        np.testing.assert_allclose(intervals.upper[t], radius, rtol=1e-12)
        np.testing.assert_allclose(
            1 - adaptive.levels[t], miss_rate, atol=1e-12
        )
        missed = abs(p.y[t]) > radius
        miss_rate += 0.0437 * (0.2 - missed)
        scores.append(abs(p.y[t]))
    np.testing.assert_allclose(1 - adaptive.level, miss_rate, atol=1e-12)


def test_share_of_misses_keeps_its_bound_for_any_series():
    for step_size in (0.01, 0.2):
        for method, p in (
            (NormalizedResiduals(), series()),
            (APS(), classified(400)),
            # Labels that are always the least probable class.
            (LAC(), classified(400)),
        ):
            if isinstance(method, LAC):
                p.y = p.log_mean.argmin(-1)
            start = regressed() if p.task == "regression" else classified()
            adaptive = AdaptiveConformal(method, step_size=step_size)
            adaptive.fit(start, coverage=0.8)
            assert adaptive.bound() == np.inf
            missed = []
            for part in np.split(np.arange(400), [3, 50, 51, 220]):
                sets = adaptive.update(rows(p, part))
                missed.extend(~sets.contains())
                assert abs(np.mean(missed) - 0.2) <= adaptive.bound()
            assert len(missed) == 400


def test_coverage_after_a_drift_returns_where_a_fixed_cutoff_loses_it():
    p = series(2000)
    calibration = RegressionPrediction(
        np.zeros(300), variance_within=np.ones(300), y=series(600).y[:300]
    )
    method = NormalizedResiduals().fit(calibration, coverage=0.9)
    fixed = method(p).contains()
    adaptive = AdaptiveConformal(
        NormalizedResiduals(), step_size=0.05, window=100
    )
    followed = adaptive.fit(calibration).update(p).contains()
    assert fixed[1200:].mean() < 0.3
    assert abs(followed[1200:].mean() - 0.9) < 0.03


def test_report_and_sets_of_the_present_level():
    adaptive = AdaptiveConformal(LAC()).fit(classified(), coverage=0.8)
    p = classified(30, seed=2)
    plain = LAC().fit(classified(), coverage=0.8)
    np.testing.assert_array_equal(adaptive(p).membership, plain(p).membership)
    report = adaptive.update(p).evaluate()
    assert report.name == "AdaptiveConformal" and report.level == 0.8
    assert np.isnan(report.expected).all()


def test_saved_series_goes_on_where_it_was(storage):
    p, later = classified(30, seed=2), classified(30, seed=3)
    adaptive = AdaptiveConformal(APS(seed=4), step_size=0.1, window=40)
    adaptive.fit(classified(), coverage=0.8).update(p)
    adaptive.save(storage / "series.bdl")
    loaded = conformal.load(storage / "series.bdl")
    ours, theirs = adaptive.update(later), loaded.update(later)
    np.testing.assert_array_equal(ours.membership, theirs.membership)
    np.testing.assert_array_equal(loaded.levels, adaptive.levels)


def test_wrong_use_is_refused():
    with pytest.raises(RuntimeError, match="is not fitted yet"):
        AdaptiveConformal(LAC()).update(classified())
    with pytest.raises(ValueError, match="Use `per_class=False`"):
        AdaptiveConformal(LAC(per_class=True))
    with pytest.raises(ValueError, match="`method` must be a conformal"):
        AdaptiveConformal(classified())
    with pytest.raises(ValueError, match="`step_size` must be a number"):
        AdaptiveConformal(LAC(), step_size=0.0)
    two = regressed(60, (2,))
    with pytest.raises(ValueError, match="Use `joint=True`"):
        AdaptiveConformal(NormalizedResiduals()).fit(two)


def test_series_of_several_targets_covers_whole_examples():
    two = regressed(60, (2,))
    method = AdaptiveConformal(NormalizedResiduals(joint=True))
    intervals = method.fit(two).update(two)
    report = intervals.evaluate()
    assert report.num_values == 60
    assert report.coverage == intervals.contains().all(1).mean()


def test_rows_one_by_one_draw_as_few_random_numbers_as_rows_at_once(
    monkeypatch,
):
    drawn = []

    class Counted(np.random.RandomState):
        def uniform(self, size):
            drawn.append(size)
            return super().uniform(size=size)

    p = classified(300, seed=2)
    whole = AdaptiveConformal(APS(seed=4)).fit(classified())
    expected = whole.update(p).membership
    monkeypatch.setattr(np.random, "RandomState", Counted)
    adaptive = AdaptiveConformal(APS(seed=4)).fit(classified())
    found = [
        adaptive.update(rows(p, slice(i, i + 1))).membership[0]
        for i in range(300)
    ]
    np.testing.assert_array_equal(found, expected)
    # Each row has a score and a set; `fit` has two scores of each row.
    assert sum(drawn) <= 2 * (60 + 300)


def test_padding_takes_no_step():
    calibration, p = regressed(50), series(100)
    chosen = np.random.default_rng(0).permutation(150) < 100
    mean, variance, y = np.zeros(150), np.zeros(150), np.full(150, np.nan)
    variance[chosen], y[chosen] = 1.0, p.y
    gaps = RegressionPrediction(
        mean, variance_within=variance, y=y, mask=chosen
    )
    a, b = (
        AdaptiveConformal(NormalizedResiduals(), step_size=0.05).fit(
            calibration, coverage=0.8
        )
        for _ in "ab"
    )
    expected, found = a.update(p), b.update(gaps)
    np.testing.assert_array_equal(a.levels, b.levels)
    np.testing.assert_array_equal(expected.upper, found.upper[chosen])
    assert found.evaluate().coverage == expected.evaluate().coverage
