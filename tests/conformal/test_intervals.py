"""Intervals beside loops over the definitions of the papers."""

import numpy as np
import pytest
import scipy.optimize
import scipy.stats

from keras_bdl import conformal
from keras_bdl.conformal import ConformalizedQuantiles
from keras_bdl.conformal import NormalizedResiduals
from keras_bdl.prediction import RegressionPrediction
from tests.conformal.helpers import classified
from tests.conformal.helpers import regressed
from tests.conformal.helpers import rows

POOL = regressed(60)
CALIBRATION, TEST = rows(POOL, slice(0, 40)), rows(POOL, slice(40, 60))
K = 33  # ceil(41 * 0.8)


def ends(intervals):
    return np.stack([intervals.lower, intervals.upper])


def test_residual_intervals_are_those_of_the_definition():
    p = CALIBRATION
    for normalized in (True, False):
        s = p.stddev if normalized else np.ones(40)
        scores = [abs(p.y[i] - p.mean[i]) / s[i] for i in range(40)]
        cutoff = sorted(scores)[K - 1]
        method = NormalizedResiduals(normalized=normalized)
        intervals = method.fit(p, coverage=0.8)(TEST)
        s = TEST.stddev if normalized else np.ones(20)
        expected = [TEST.mean - cutoff * s, TEST.mean + cutoff * s]
        np.testing.assert_allclose(ends(intervals), expected, rtol=1e-12)


def quantile(level, p, i):
    """The quantile of the mixture of one row, by a search."""
    means, stddev = p.samples[:, i], np.sqrt(p.sample_variances[:, i])
    return scipy.optimize.brentq(
        lambda t: scipy.stats.norm.cdf(t, means, stddev).mean() - level,
        -50,
        50,
        xtol=1e-13,
    )


def gaussian_quantile(level, p, i):
    return scipy.stats.norm.ppf(level, p.mean[i], p.stddev[i])


def sample_quantile(level, p, i):
    return np.quantile(p.samples[:, i], level)


@pytest.mark.parametrize(
    "source, find",
    [
        ("mixture", quantile),
        ("gaussian", gaussian_quantile),
        ("samples", sample_quantile),
    ],
)
def test_quantile_intervals_are_those_of_the_definition(source, find):
    pool = regressed(60, samples=4)
    p, test = rows(pool, slice(0, 40)), rows(pool, slice(40, 60))
    low, high = (
        np.array([find(level, pool, i) for i in range(60)])
        for level in (0.1, 0.9)
    )
    scores = [max(low[i] - p.y[i], p.y[i] - high[i]) for i in range(40)]
    cutoff = sorted(scores)[K - 1]
    method = ConformalizedQuantiles(source=source).fit(p, coverage=0.8)
    expected = [low[40:] - cutoff, high[40:] + cutoff]
    np.testing.assert_allclose(ends(method(test)), expected, rtol=1e-10)


def test_quantiles_of_a_mixture_with_a_gap_are_exact():
    # Two narrow humps: the distribution function is flat in between.
    p = RegressionPrediction(
        [0.0],
        samples=[[-40.0], [40.0]],
        sample_variances=np.full((2, 1), 0.01),
        y=[39.0],
    )
    method = ConformalizedQuantiles().fit(p, coverage=0.2)
    # The levels 0.4 and 0.6 are the levels 0.8 and 0.2 of one hump each.
    edge = 40 - 0.1 * scipy.stats.norm.ppf(0.8)
    cutoff = -edge + 39.0
    np.testing.assert_allclose(
        ends(method(p))[:, 0], [-edge - cutoff, edge + cutoff], rtol=1e-12
    )


def test_each_target_has_a_cutoff_or_all_share_one():
    pool = regressed(60, (2,))
    p, test = rows(pool, slice(0, 40)), rows(pool, slice(40, 60))
    own = NormalizedResiduals().fit(p, coverage=0.8)
    for c in range(2):
        one = RegressionPrediction(
            p.mean[:, c], variance_within=p.variance_within[:, c], y=p.y[:, c]
        )
        alone = NormalizedResiduals().fit(one, coverage=0.8)
        assert own.cutoff.values[c] == alone.cutoff.values
    joint = NormalizedResiduals(joint=True).fit(p, coverage=0.8)
    worst = (np.abs(p.y - p.mean) / p.stddev).max(1)
    assert joint.cutoff.values == np.sort(worst)[K - 1]
    report = joint(test).evaluate()
    assert report.coverage == joint(test).contains().all(1).mean()
    assert report.num_values == 20


def test_only_each_of_several_targets_has_intervals_of_its_coverage():
    pool = regressed(60, (2,))
    pool.y[:, 1] = pool.mean[:, 1]  # no miss
    p, test = rows(pool, slice(0, 40)), rows(pool, slice(40, 60))
    method = NormalizedResiduals().fit(p, coverage=0.8)
    report = method(test).evaluate()
    assert report.num_values == 40
    assert np.isnan([report.interval, report.expected]).all()
    assert np.isnan([g["interval"] for g in report.by_size.values()]).all()
    assert str(report).count("n/a") == 4 + 2 * len(report.by_size)
    law = scipy.stats.betabinom(20, K, 41 - K)
    for c, group in report.by_group.items():
        inside = int(method(test).contains()[:, c].sum())
        exact = scipy.stats.binomtest(inside, 20).proportion_ci()
        np.testing.assert_allclose(group["interval"], exact)
        assert group["expected"] == tuple(law.ppf([0.025, 0.975]) / 20)
    assert "95 % expected" in str(report).split("By class or target")[1]
    # The same sets of whole examples have one interval.
    joint = NormalizedResiduals(joint=True).fit(p, coverage=0.8)(test)
    assert joint.evaluate().expected == report.by_group[0]["expected"]
    assert np.isfinite(joint.evaluate().interval).all()
    assert "share of infinite intervals" in str(report)


def test_target_with_the_score_of_the_cutoff_is_inside():
    # Rounding of the ends must not lose targets that tie with the cutoff.
    for seed in range(50):
        p = regressed(9, seed=seed)
        # Means near zero: the ends are sums of rounded products.
        p = RegressionPrediction(
            1e-3 * p.mean, variance_within=p.variance, y=p.y
        )
        for make in (NormalizedResiduals, ConformalizedQuantiles):
            method = make().fit(p, coverage=0.9)
            assert method(p).contains().all()


def test_too_few_targets_give_infinite_intervals_and_say_so():
    few = rows(CALIBRATION, slice(0, 8))
    for method in (NormalizedResiduals(), ConformalizedQuantiles()):
        with pytest.warns(UserWarning, match="8 calibration targets.*the 9"):
            method.fit(few, coverage=0.9)
        intervals = method(TEST)
        assert np.isneginf(intervals.lower).all()
        report = intervals.evaluate()
        assert report.coverage == report.full == 1.0
        assert report.expected == (1.0, 1.0)


def test_report_counts_by_width():
    report = NormalizedResiduals().fit(CALIBRATION)(TEST).evaluate()
    assert len(report.by_size) == 4
    assert sum(g["count"] for g in report.by_size.values()) == 20
    equal = NormalizedResiduals(normalized=False).fit(CALIBRATION)(TEST)
    assert len(equal.evaluate().by_size) == 1


def test_saved_methods_give_the_same_intervals(storage):
    pool = regressed(60, (2,), samples=3)
    for method in (
        NormalizedResiduals(normalized=False),
        ConformalizedQuantiles(joint=True),
    ):
        method.fit(pool, coverage=0.8).save(storage / "intervals.bdl")
        loaded = conformal.load(storage / "intervals.bdl")
        assert repr(loaded) == repr(method)
        np.testing.assert_array_equal(ends(loaded(pool)), ends(method(pool)))


@pytest.mark.parametrize("make", [NormalizedResiduals, ConformalizedQuantiles])
def test_wrong_data_are_refused(make):
    method = make()
    with pytest.raises(RuntimeError, match="is not fitted yet"):
        method(TEST)
    with pytest.raises(ValueError, match="must be a `RegressionPrediction`"):
        method.fit(classified())
    with pytest.raises(ValueError, match="`y` must not hold NaN"):
        method.fit(CALIBRATION, np.full(40, np.nan))
    with pytest.raises(ValueError, match="must have the shape of the"):
        method.fit(CALIBRATION, np.zeros(39))
    with pytest.raises(ValueError, match="variance|stddev"):
        method.fit(RegressionPrediction(np.zeros(9), y=np.zeros(9)))
    method.fit(CALIBRATION, coverage=0.8)
    cutoff = method.cutoff
    with pytest.raises(ValueError, match="the targets of `fit`"):
        method(regressed(9, (2,)))
    with pytest.raises(ValueError, match="must be a `RegressionPrediction`"):
        method(classified())
    # A failed `fit` leaves the earlier one.
    with pytest.raises(ValueError, match="must not hold NaN"):
        method.fit(CALIBRATION, np.full(40, np.nan), coverage=0.5)
    assert method.cutoff is cutoff and method.coverage == 0.8


def test_quantiles_of_another_source_than_in_fit_are_refused():
    method = ConformalizedQuantiles().fit(regressed(60, samples=3))
    with pytest.raises(ValueError, match="as the quantiles of 'mixture'"):
        method(TEST)


def padded(p, steps=4):
    """Returns a prediction in rows of steps, the last of which are padding."""
    n = len(p.mean)
    lengths = np.full(n // 3, 3)

    def filled(values, first=0):
        if values is None:
            return None
        shape = values.shape[:first]
        whole = np.zeros((*shape, len(lengths), steps))
        whole[..., :3] = values.reshape(*shape, -1, 3)
        return whole

    y = filled(p.y)
    mask = np.arange(steps) < lengths[:, None]
    y[~mask] = np.nan
    return RegressionPrediction(
        filled(p.mean),
        variance_within=filled(p.variance_within),
        samples=filled(p.samples, 1) if p.has_samples else None,
        sample_variances=filled(p.sample_variances, 1)
        if p.has_samples
        else None,
        y=y,
        mask=mask,
    )


@pytest.mark.parametrize("joint", [False, True])
@pytest.mark.parametrize(
    "make",
    [
        NormalizedResiduals,
        *(
            lambda source=source, **kwargs: ConformalizedQuantiles(
                source=source, **kwargs
            )
            for source in ("gaussian", "mixture", "samples")
        ),
    ],
)
@pytest.mark.filterwarnings("ignore:Coverage .* is only kept")
def test_padding_changes_neither_cutoff_nor_report(make, joint):
    p = padded(regressed(120, samples=5))
    without = RegressionPrediction(
        p.mean[:, :3],
        variance_within=p.variance_within[:, :3],
        samples=p.samples[..., :3],
        sample_variances=p.sample_variances[..., :3],
        y=p.y[:, :3],
    )
    expected = make(joint=joint).fit(without, coverage=0.8)
    method = make(joint=joint).fit(p, coverage=0.8)
    np.testing.assert_allclose(
        np.atleast_1d(method.cutoff.values)[:3],
        np.atleast_1d(expected.cutoff.values),
    )
    if not joint:
        np.testing.assert_array_equal(method.cutoff.counts, [40, 40, 40, 0])
    report = method(p).evaluate()
    of_rest = expected(without).evaluate()
    for name in ("num_values", "coverage", "mean_size", "by_size"):
        assert repr(report[name]) == repr(of_rest[name]), name
    for k, entry in of_rest.by_group.items():
        assert repr(report.by_group[k]) == repr(entry)
    np.testing.assert_array_equal(
        method(p).contains()[:, 3], np.zeros(40, bool)
    )
