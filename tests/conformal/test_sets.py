"""Sets of classes beside loops over the definitions of the papers."""

import numpy as np
import pytest

from keras_bdl import conformal
from keras_bdl._data import _checked_inputs as row_blocks
from keras_bdl.conformal import APS
from keras_bdl.conformal import LAC
from keras_bdl.conformal import RAPS
from keras_bdl.conformal import AdaptiveConformal
from keras_bdl.conformal import RiskControl
from keras_bdl.prediction import ClassificationPrediction
from keras_bdl.prediction import RegressionPrediction
from tests.conformal.helpers import classified

CALIBRATION, TEST = classified(40), classified(25, seed=1)
TIES = classified(40, ties=True), classified(25, seed=1, ties=True)


def score_lac(p, c, u):
    return 1 - p[c]


def score_aps(p, c, u):
    """Romano et al.: the sum down to the class, less u times its own."""
    before = [p[j] for j in range(len(p)) if (-p[j], j) < (-p[c], c)]
    return sum(before) + p[c] - u * p[c]


def score_raps(p, c, u):
    """Angelopoulos et al., with lambda = 0.3 and k_reg = 1."""
    rank = sum((-p[j], j) <= (-p[c], c) for j in range(len(p)))
    return score_aps(p, c, u) + 0.3 * max(0, rank - 1)


def brute_force(score, calibration, test, seed, per_class=False):
    """Returns the membership by a loop over examples and classes."""
    stream = np.random.RandomState(seed)
    u = stream.uniform(size=len(calibration.mean))
    scores = [
        score(p, c, v)
        for p, c, v in zip(calibration.mean, calibration.y, u, strict=True)
    ]
    u = stream.uniform(size=len(test.mean))
    sets = np.zeros(test.mean.shape, bool)
    for c in range(sets.shape[1]):
        mine = sorted(
            s
            for s, label in zip(scores, calibration.y, strict=True)
            if label == c or not per_class
        )
        k = -(-(len(mine) + 1) * 8 // 10)
        cutoff = mine[k - 1] if k <= len(mine) else np.inf
        for i, p in enumerate(test.mean):
            sets[i, c] = score(p, c, u[i]) <= cutoff
    return sets


@pytest.mark.filterwarnings("ignore:Coverage 0.8 is only kept by sets")
@pytest.mark.parametrize("per_class", [False, True])
@pytest.mark.parametrize(
    "make, score, data",
    [
        (lambda **k: LAC(**k), score_lac, (CALIBRATION, TEST)),
        (lambda **k: LAC(**k), score_lac, TIES),
        (lambda **k: APS(seed=3, **k), score_aps, (CALIBRATION, TEST)),
        (
            lambda **k: RAPS(seed=3, penalty=0.3, free_ranks=1, **k),
            score_raps,
            (CALIBRATION, TEST),
        ),
    ],
    ids=["LAC", "LAC with ties", "APS", "RAPS"],
)
def test_sets_are_those_of_a_loop_over_the_definition(
    make, score, data, per_class, monkeypatch
):
    monkeypatch.setattr(row_blocks, "BLOCK_ENTRIES", 35)  # seven rows
    calibration, test = data
    method = make(per_class=per_class).fit(calibration, coverage=0.8)
    expected = brute_force(score, calibration, test, 3, per_class)
    sets = method(test)
    np.testing.assert_array_equal(sets.membership, expected)
    np.testing.assert_array_equal(sets.sizes, expected.sum(1))
    inside = expected[np.arange(25), test.y]
    np.testing.assert_array_equal(sets.contains(), inside)
    for i in (0, 13, -1):
        np.testing.assert_array_equal(sets[i], np.flatnonzero(expected[i]))


def test_without_randomness_aps_adds_whole_probabilities():
    method = APS(randomized=False).fit(CALIBRATION, coverage=0.8)
    scores = [
        score_aps(p, c, 0.0)
        for p, c in zip(CALIBRATION.mean, CALIBRATION.y, strict=True)
    ]
    np.testing.assert_allclose(method.cutoff.values, sorted(scores)[32])
    np.testing.assert_allclose(method.scores(CALIBRATION), scores)


def test_penalty_of_raps_begins_after_the_free_ranks():
    method = RAPS(randomized=False, penalty=0.3, free_ranks=1)
    found = method.class_scores(TEST.log_mean, np.ones(25))
    expected = [[score_raps(p, c, 0.0) for c in range(5)] for p in TEST.mean]
    np.testing.assert_allclose(found, expected)


def test_tuned_raps_has_the_ranks_and_the_penalty_of_a_loop():
    tuning = classified(80, classes=12, seed=2)
    ranks = sorted(
        sum((-p[j], j) <= (-p[c], c) for j in range(12))
        for p, c in zip(tuning.mean, tuning.y, strict=True)
    )
    tuned = RAPS.tuned(tuning, coverage=0.8, seed=3, penalties=(0, 0.1, 9))
    assert tuned.free_ranks == ranks[65 - 1]  # ceil(81 * 0.8) = 65
    sizes = {}
    for penalty in (0, 0.1, 9):
        options = {"penalty": penalty, "free_ranks": tuned.free_ranks}
        method = RAPS(seed=3, **options).fit(tuning, coverage=0.8)
        sizes[penalty] = method(tuning).membership.sum()
    assert len(set(sizes.values())) == 3
    assert tuned.penalty == min(sizes, key=sizes.get) != 0
    assert tuned.seed == 3 and tuned.cutoff is None
    with pytest.raises(ValueError, match="`penalties` must hold at least one"):
        RAPS.tuned(tuning, penalties=())


def test_score_of_the_last_class_is_1_whatever_the_sums_round_to():
    log_probs = CALIBRATION.log_mean.astype("float32")
    totals = np.exp(log_probs).astype("float64").sum(-1)
    assert len(np.unique(totals)) > 5
    least = ClassificationPrediction(log_probs, y=log_probs.argmin(-1))
    method = APS(randomized=False).fit(least, coverage=0.5)
    assert method.cutoff.values == 1.0 and method(least).membership.all()


def test_score_of_a_label_is_a_column_of_all_scores_to_the_last_bit():
    for dtype in ("float32", "float64"):
        for data in (*TIES, classified(50, classes=37)):
            log_probs = data.log_mean.astype(dtype)
            for method in (LAC(), APS(), RAPS(free_ranks=1)):
                keys = method.draw_keys(0, len(log_probs))
                everything = method.class_scores(log_probs, keys)
                for c in range(log_probs.shape[1]):
                    y = np.full(len(log_probs), c)
                    np.testing.assert_array_equal(
                        method.label_scores(log_probs, keys, y),
                        everything[:, c],
                    )


def test_later_rows_get_the_random_numbers_after_those_before():
    method = APS(seed=5).fit(CALIBRATION)
    whole = method(TEST).membership
    parts = [
        method(
            ClassificationPrediction(TEST.log_mean[part]),
            first_row=part.start,
        ).membership
        for part in (slice(0, 10), slice(10, 25))
    ]
    np.testing.assert_array_equal(np.concatenate(parts), whole)


def test_too_few_labels_give_the_infinite_set_and_say_so():
    few = ClassificationPrediction(CALIBRATION.log_mean[:8], y=[0] * 8)
    for method in (LAC(), APS(), RAPS()):
        with pytest.warns(UserWarning, match="8 calibration labels.*the 9"):
            method.fit(few, coverage=0.9)
        report = method(TEST).evaluate()
        assert report.coverage == 1.0 and report.full == 1.0
    with pytest.warns(UserWarning, match="4 of 5 classes have fewer than 3"):
        method = LAC(per_class=True).fit(few, coverage=0.7)
    sets = method(TEST).membership
    assert sets[:, 1:].all() and not sets[:, 0].all()


def test_report_counts_by_size_and_by_class():
    sets = LAC().fit(CALIBRATION, coverage=0.8)(TEST)
    report, inside = sets.evaluate(), sets.contains()
    assert report.coverage == inside.mean() and report.level == 0.8
    assert report.mean_size == sets.sizes.mean()
    two = report.by_size["2"]
    assert two["count"] == (sets.sizes == 2).sum()
    assert two["coverage"] == inside[sets.sizes == 2].mean()
    for c, group in report.by_group.items():
        assert group["coverage"] == inside[TEST.y == c].mean()
    import scipy.stats

    exact = scipy.stats.binomtest(int(inside.sum()), 25).proportion_ci()
    np.testing.assert_allclose(report.interval, exact)
    assert "95 % expected within" in str(report)


def test_each_class_with_its_own_cutoff_has_its_own_expected_interval():
    import scipy.stats

    test = classified(300, seed=1)
    method = LAC(per_class=True).fit(classified(200), coverage=0.7)
    report = method(test).evaluate()
    assert np.isnan(report.expected).all()
    for c, group in report.by_group.items():
        n, k = method.cutoff.counts[c], method.cutoff.ranks[c]
        count = (test.y == c).sum()
        law = scipy.stats.betabinom(count, k, n + 1 - k)
        assert group["expected"] == tuple(law.ppf([0.025, 0.975]) / count)
        low, high = (f"{end:.4f}" for end in group["expected"])
        line = str(report).split("By class or target")[1].splitlines()[1 + c]
        assert line.split()[-2:] == [low, high]
    assert "share of sets with all classes" in str(report)
    # One cutoff for all classes has no law for a single class.
    report = LAC().fit(classified(200), coverage=0.7)(test).evaluate()
    groups = report.by_group.values()
    assert np.isnan([group["expected"] for group in groups]).all()


def test_saved_methods_give_the_same_sets(storage):
    with pytest.warns(UserWarning, match="sets with every class"):
        methods = [
            LAC().fit(CALIBRATION),
            APS(seed=3).fit(CALIBRATION),
            RAPS(penalty=0.2, free_ranks=1).fit(CALIBRATION),
            APS(per_class=True, randomized=False).fit(CALIBRATION),
        ]
    for method in methods:
        method.save(storage / "sets.bdl")
        loaded = conformal.load(storage / "sets.bdl")
        assert repr(loaded) == repr(method)
        ours, theirs = method(TEST), loaded(TEST)
        np.testing.assert_array_equal(ours.membership, theirs.membership)
        assert str(theirs.evaluate()) == str(ours.evaluate())


@pytest.mark.parametrize("method", [LAC(), APS(), RiskControl()])
def test_wrong_data_are_refused(method):
    with pytest.raises(RuntimeError, match="is not fitted yet"):
        method(TEST)
    with pytest.raises(ValueError, match="integers from 0 to 4"):
        method.fit(CALIBRATION, np.full(40, 5))
    with pytest.raises(ValueError, match="`y` must not hold NaN"):
        method.fit(CALIBRATION, np.full(40, np.nan))
    with pytest.raises(ValueError, match="`y` must be given"):
        method.fit(ClassificationPrediction(CALIBRATION.log_mean))
    log_mean = CALIBRATION.log_mean.copy()
    log_mean[7, 2] = np.nan
    with pytest.raises(ValueError, match="mean` must not hold NaN"):
        method.fit(ClassificationPrediction(log_mean), CALIBRATION.y)
    with pytest.raises(ValueError, match="must be a `ClassificationPredict"):
        method.fit(RegressionPrediction(np.zeros(40)), CALIBRATION.y)


@pytest.mark.filterwarnings("ignore:Coverage .* is only kept by sets")
def test_another_fit_may_have_another_number_of_classes():
    five, three = CALIBRATION, classified(40, classes=3)
    for make in (LAC, APS, RAPS, lambda: AdaptiveConformal(LAC())):
        expected = make().fit(three, coverage=0.8)(three).membership
        method = make().fit(five)
        # A failed `fit` leaves the earlier one.
        with pytest.raises(ValueError, match="integers from 0 to 2"):
            method.fit(three, np.full(40, 3))
        assert method(five).membership.shape == (40, 5)
        method.fit(three, coverage=0.8)
        np.testing.assert_array_equal(method(three).membership, expected)
        with pytest.raises(ValueError, match="the classes of `fit`"):
            method(five)


def test_several_rows_of_sets_at_once_are_refused():
    sets = LAC().fit(CALIBRATION)(TEST)
    np.testing.assert_array_equal(sets[np.int64(3)], sets[3])
    assert len(list(sets)) == 25
    for rows in (slice(0, 3), [0, 3], 1.0):
        with pytest.raises(TypeError, match="Read several sets from"):
            sets[rows]


def test_wrong_arguments_are_refused():
    for coverage in (0.0, 1.0, np.nan, "0.9"):
        with pytest.raises(ValueError, match="`coverage` must be a number"):
            LAC().fit(CALIBRATION, coverage=coverage)
    with pytest.raises(ValueError, match="the classes of `fit`"):
        LAC().fit(CALIBRATION)(classified(10, classes=4))
    images = ClassificationPrediction(CALIBRATION.log_mean.reshape(5, 8, 5))
    with pytest.raises(ValueError, match="use .*RiskControl"):
        LAC().fit(images, np.zeros((5, 8)))
    with pytest.raises(ValueError, match="`seed`"):
        APS(seed=-1)
    with pytest.raises(ValueError, match="`penalty`"):
        RAPS(penalty=-1.0)


def with_gaps(p, chosen, ignored):
    """Returns rows with further rows between, which do not count."""
    n = len(chosen)
    log_mean, y = (
        np.full((n, p.num_classes), -np.log(p.num_classes)),
        np.full(n, 99),
    )
    log_mean[chosen], y[chosen] = p.log_mean, p.y
    kwargs = {"ignore_class": 99} if ignored else {"mask": chosen}
    return ClassificationPrediction(log_mean, y=y, **kwargs)


@pytest.mark.parametrize("ignored", [False, True])
@pytest.mark.parametrize(
    "method",
    [LAC(), LAC(per_class=True), APS(seed=1), RAPS(randomized=False)],
    ids=repr,
)
@pytest.mark.filterwarnings("ignore:Coverage .* is only kept")
def test_rows_that_do_not_count_change_neither_cutoff_nor_report(
    method, ignored
):
    chosen = np.random.default_rng(0).permutation(60) < 40
    padded = with_gaps(CALIBRATION, chosen, ignored)
    sets = method.fit(CALIBRATION, coverage=0.8)(CALIBRATION)
    cutoff = method.cutoff
    method.fit(padded, coverage=0.8)
    np.testing.assert_array_equal(method.cutoff.values, cutoff.values)
    np.testing.assert_array_equal(method.cutoff.counts, cutoff.counts)
    scores = method.scores(padded)
    assert np.isnan(scores[~chosen]).all()
    found = method(padded)
    assert len(found) == 60
    assert not found.contains()[~chosen].any()
    report = found.evaluate()
    assert report.num_values == 40
    if not getattr(method, "randomized", False):  # rows have random numbers
        expected = sets.evaluate()
        assert repr(report) == repr(expected)  # NaN is equal, too
        assert report.per_example.checksum == expected.per_example.checksum


def test_tuned_penalties_do_not_see_padding():
    chosen = np.random.default_rng(0).permutation(60) < 40
    padded = with_gaps(CALIBRATION, chosen, ignored=False)
    arguments = {"coverage": 0.8, "randomized": False}
    expected = RAPS.tuned(CALIBRATION, **arguments).get_config()
    assert RAPS.tuned(padded, **arguments).get_config() == expected
