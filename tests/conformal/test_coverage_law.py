"""The coverage over random splits follows its exact law."""

import numpy as np
import pytest
import scipy.stats

from keras_bdl.conformal import APS
from keras_bdl.conformal import LAC
from keras_bdl.conformal import RAPS
from keras_bdl.conformal import ConformalizedQuantiles
from keras_bdl.conformal import NormalizedResiduals
from keras_bdl.conformal import RiskControl
from keras_bdl.conformal._conformal import Cutoff
from keras_bdl.conformal._conformal import least_count
from keras_bdl.conformal._conformal import rank
from keras_bdl.prediction import ClassificationPrediction
from tests.conformal.helpers import classified
from tests.conformal.helpers import regressed
from tests.conformal.helpers import rows

SPLITS = 400


def splits(pool, n=39):
    """Yields calibration and test rows of random halves of one pool."""
    rng = np.random.default_rng(1)
    for _ in range(SPLITS):
        order = rng.permutation(len(pool.mean))
        yield rows(pool, order[:n]), rows(pool, order[n:])


def uniform_if_beta(counts, totals, ks, ns, rng):
    """Returns numbers that are uniform if, and only if, the law holds.

    Given a coverage of law Beta(k, n + 1 - k), the number of covered test
    rows is binomial. Its distribution function jumps; a random number within
    the jump makes the result uniform.
    """
    law = scipy.stats.betabinom(totals, ks, ns + 1 - ks)
    low, high = law.cdf(counts - 1), law.cdf(counts)
    return low + rng.uniform(size=len(counts)) * (high - low)


def p_value(numbers):
    return scipy.stats.kstest(numbers, "uniform").pvalue


METHODS = {
    "LAC": (lambda seed: LAC(), classified(140)),
    "APS": (lambda seed: APS(seed=seed), classified(140)),
    # Half of the probabilities are equal or zero.
    "APS with ties": (lambda seed: APS(seed=seed), classified(140, ties=True)),
    "RAPS": (
        lambda seed: RAPS(seed=seed, free_ranks=1, penalty=0.2),
        classified(140),
    ),
    "residuals": (lambda seed: NormalizedResiduals(), regressed(140)),
    "two targets": (
        lambda seed: NormalizedResiduals(joint=True),
        regressed(140, (2,)),
    ),
    "quantiles": (
        lambda seed: ConformalizedQuantiles(),
        regressed(140),
    ),
}


@pytest.mark.parametrize("name", METHODS)
def test_coverage_over_random_splits_has_its_beta_law(name):
    make, pool = METHODS[name]
    found = []
    for seed, (calibration, test) in enumerate(splits(pool)):
        method = make(seed).fit(calibration, coverage=0.8)
        inside = method(test).contains()
        found.append(inside.reshape(len(inside), -1).all(1).sum())
    n, k = 39, 32
    assert rank(n, 0.8) == k
    uniform = uniform_if_beta(
        np.array(found), 101, k, n, np.random.default_rng(2)
    )
    assert p_value(uniform) > 0.01


@pytest.mark.parametrize("make", [LAC, APS, RAPS])
def test_coverage_of_each_class_has_its_beta_law(make):
    pool = classified(260, classes=3)
    classes = np.arange(3)
    found, totals, ns = [], [], []
    for seed, (calibration, test) in enumerate(splits(pool, 90)):
        options = {} if make is LAC else {"seed": seed}
        method = make(per_class=True, **options).fit(calibration, coverage=0.7)
        inside = method(test).contains()
        found.append([inside[test.y == c].sum() for c in classes])
        totals.append([(test.y == c).sum() for c in classes])
        ns.append(method.cutoff.counts)
    found, totals, ns = map(np.array, (found, totals, ns))
    ks = np.array([[rank(n, 0.7) for n in row] for row in ns])
    assert (ks <= ns).all()
    rng = np.random.default_rng(3)
    for c in classes:
        uniform = uniform_if_beta(
            found[:, c], totals[:, c], ks[:, c], ns[:, c], rng
        )
        # One in a hundred, shared by three classes.
        assert p_value(uniform) > 0.01 / 3


def test_mean_risk_over_random_splits_is_below_its_bound():
    pool = classified(140 * 8, classes=2)
    log_mean = pool.log_mean.reshape(140, 8, 2)
    y = pool.y.reshape(140, 8)
    pool = type(pool)(log_mean, y=y)
    risks = []
    for calibration, test in splits(pool):
        control = RiskControl().fit(calibration, risk=0.2)
        risks.append(control(test).evaluate().loss)
    error = np.std(risks) / np.sqrt(SPLITS)
    # Theorem 2 of the paper: at most 2 B / (n + 1) below, if no two
    # probabilities are equal.
    assert 0.2 - 2 / 40 - 5 * error <= np.mean(risks) <= 0.2 + 5 * error


def test_coverage_of_aps_is_exact_over_seeds_and_not_for_a_fixed_one():
    # Two classes of equal probability, and a label that is either by chance.
    found = []
    for seed in range(200):
        covered = []
        for label in (0, 1):
            p = ClassificationPrediction(np.log([[0.5, 0.5]]), y=[label])
            sets = APS(seed=seed).fit(p, coverage=0.5)(p)
            covered.append(sets.membership.mean())
        found.append(np.mean(covered))
    # It depends on which of the two rows gets the larger number of a seed.
    assert set(found) == {0.25, 0.75}
    assert abs(np.mean(found) - 0.5) < 5 * 0.25 / np.sqrt(200)


def test_law_of_the_coverage_is_the_beta_distribution_of_the_rank():
    law = LAC().fit(classified(39), coverage=0.8).coverage_law()
    assert law.args == (32, 8)
    np.testing.assert_allclose(law.mean(), 32 / 40)


def test_rank_is_exact_where_floats_round():
    # (n + 1) times a decimal number is an integer here.
    for level in (0.1, 0.3, 0.7, 0.9, 0.95, 0.99):
        for n in range(99, 3000, 100):
            assert rank(n, level) == round((n + 1) * level)
    assert least_count(0.9) == 9 and least_count(0.95) == 19


def test_rank_of_a_level_from_arithmetic_is_that_of_its_decimal_number():
    level = np.arange(0.5, 1, 0.05)[-1]
    assert level > 0.95 and rank(19, level) == rank(19, 0.95) == 19
    assert least_count(level) == 19
    calibration = classified(19)
    sets = LAC().fit(calibration, coverage=level)(calibration)
    assert sets.sizes.mean() < 5 and not sets.method.cutoff.infinite
    # Nine examples are enough for a risk of 0.1, also for 1 - 0.9.
    ones = classified(9)
    control = RiskControl("miscoverage").fit(ones, risk=1 - 0.9)
    assert control.threshold > 0
    # Levels near 0 or 1 stay inside.
    assert rank(10, 1e-300) == 1 and rank(10, np.nextafter(1, 0)) == 11
    assert least_count(np.nextafter(1, 0)) > 10**15


def test_equal_scores_are_ordered_by_their_keys():
    scores, keys = np.array([1.0, 0, 0, 0]), np.array([0.5, 0.3, 0.9, 0.6])
    cutoff = Cutoff.of(scores, 0.4, keys)
    assert (cutoff.ranks, cutoff.values, cutoff.keys) == (2, 0.0, 0.6)
    limits = cutoff.limits(np.array([0.6, 0.7]))
    assert limits[0] == 0.0 and limits[1] < 0.0
