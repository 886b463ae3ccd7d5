import json

import numpy as np
import pytest

from keras_bdl.diagnostics import convergence
from keras_bdl.diagnostics._shared_steps import SharedSteps
from keras_bdl.extend import WeightChains
from keras_bdl.extend import effective_sample_size
from keras_bdl.extend import potential_scale_reduction
from keras_bdl.posteriors import Ensemble
from tests.diagnostics.series import ar1


def make(draws=60):
    """Returns a mixed, a stuck and a constant variable."""
    apart = ar1(0.5, 3, draws, 4)
    apart[2, :, 1] += 9
    return {
        "good": ar1(0.0, 3, draws, 12).reshape(3, draws, 3, 4),
        "bad": np.concatenate([apart, np.ones((3, draws, 2))], axis=-1),
        "still": np.zeros((3, draws, 5)),
    }


def test_numbers_of_a_variable_ignore_constant_quantities():
    chains = make()
    report = convergence(chains, rank_normalized=True)
    r_hat = potential_scale_reduction(
        chains["bad"][..., :4], rank_normalized=True
    )
    ess = effective_sample_size(chains["bad"][..., :4])
    assert report.variables["bad"] == pytest.approx(
        {
            "size": 6,
            "entries": 6,
            "constant": 2,
            "r_hat_max": r_hat.max(),
            "r_hat_median": np.median(r_hat),
            "share_below_1_01": np.mean(r_hat < 1.01),
            "share_below_1_1": 0.75,
            "ess_min": ess.min(),
            "ess_median": np.median(ess),
        }
    )
    still = report.variables["still"]
    assert still["constant"] == still["entries"] == 5
    assert np.isnan([still["r_hat_max"], still["share_below_1_1"]]).all()
    assert report.total["size"] == 12 + 6 + 5
    assert report.total["share_below_1_1"] == pytest.approx(15 / 16)
    assert report.total["ess_min"] == pytest.approx(ess.min())


def test_the_table_names_the_worst_variable_and_all_others():
    report = convergence(make())
    text = str(report)
    highest = report.variables["bad"]["r_hat_max"]
    assert report.worst == "bad"
    assert text.splitlines()[-1] == f"Highest R-hat: {highest:.4f}, in bad"
    assert text.startswith("Convergence of 3 chains of 60 samples, 23 of 23")
    assert all(f"\n  {name} " in text for name in ("good", "bad", "still"))
    assert json.loads(json.dumps(report.to_dict()))["worst"] == "bad"


def test_max_entries_selects_random_quantities_and_the_report_says_so():
    x = ar1(0.0, 2, 20, 50)
    report = convergence(x, max_entries=7, seed=3)
    assert "7 of 50 quantities, chosen at random" in str(report)
    assert "at most 7 of each variable (seed 3)" in str(report)
    assert report == convergence(x, max_entries=7, seed=3)
    assert report.total != convergence(x, max_entries=7, seed=4).total
    known = set(potential_scale_reduction(x))
    assert report.variables["quantities"]["r_hat_max"] in known


def test_weight_chains_and_arrays_have_the_same_report():
    chains = make(draws=9)
    members = [
        [[chains["good"][c, d], chains["bad"][c, d]] for d in range(9)]
        for c in range(3)
    ]
    weights = WeightChains(
        [Ensemble(m, names=["good", "bad"]) for m in members]
    )
    expected = convergence(
        {"0/good": chains["good"], "1/bad": chains["bad"]}, max_entries=5
    )
    assert convergence(weights, max_entries=5) == expected
    assert expected.num_samples == 8  # the first of an odd number is left out


def test_quantity_that_varies_only_in_the_first_odd_sample_is_constant():
    x = np.zeros((2, 5, 1))
    x[0, 0] = 1.0
    report = convergence(x)
    assert report.worst is None and report.total["constant"] == 1
    assert str(report).endswith("No quantity varies")


def test_error_for_wrong_chains_names_the_variable():
    x = ar1(0.0, 2, 8, 3)
    for chains, match in (
        ({"a": x, "b": x[:1]}, r"`chains\['b'\]` must be.*\(1, 8, 3\)"),
        ({"a": x * np.nan}, r"`chains\['a'\]` must be finite"),
        ({"a": x, "b": x[:, :6]}, r"equally many.*\(2, 8\).*\(2, 6\)"),
        ({}, "at least one array"),
    ):
        with pytest.raises(ValueError, match=match):
            convergence(chains)
    with pytest.raises(ValueError, match="`max_entries` must be a positive"):
        convergence(x, max_entries=0)


def shared(share, chains=3, draws=60, quantities=8, seed=0, phi=0.6):
    """Returns chains whose steps have the correlation `share`."""
    own = ar1(phi, chains, draws, quantities, seed)
    same = ar1(phi, 1, draws, quantities, seed + 10_000)
    return np.sqrt(1 - share) * own + np.sqrt(share) * same


@pytest.mark.parametrize(
    ("share", "draws"), [(0.999, 25), (0.27, 300)], ids=["batch", "minibatch"]
)
def test_chains_with_the_same_noise_are_named(share, draws):
    chains = shared(share, draws=draws)
    with pytest.warns(UserWarning, match="Steps of different chains are corr"):
        report = convergence(chains)
    assert report.share_steps
    assert report.step_correlation == pytest.approx(share, abs=0.1)
    assert "The chains are not independent" in str(report)
    for statistic in (potential_scale_reduction, effective_sample_size):
        with pytest.warns(UserWarning, match="set_random_seed"):
            statistic(chains)


def test_noise_spread_over_several_variables_is_found():
    parts = {f"{i}": shared(0.3, quantities=1, seed=i) for i in range(12)}
    assert not any(convergence({n: c}).share_steps for n, c in parts.items())
    with pytest.warns(UserWarning, match="are correlated"):
        assert convergence(parts).share_steps


def test_equal_chains_are_named_however_short():
    chains = ar1(0.5, 3, 4, 2)
    chains[2] = chains[0]
    with pytest.warns(UserWarning, match="equal chains 0 and 2"):
        convergence(chains)
    # A few different values may be equal by chance.
    assert not convergence(np.where(chains > 0, 1.0, 0.0)).share_steps


def drifting(chains, draws, rng):
    """Chains that move together, because they forget the same start."""
    start = 3 * np.exp(-np.arange(draws) / 10)[:, None] * rng.normal(size=5)
    return start + 0.3 * ar1(0.9, chains, draws, 5, rng.integers(2**31))


def swinging(chains, draws, rng):
    """Chains that swing at one frequency, as without friction."""
    angle = 0.3 * np.arange(draws)[:, None] + rng.uniform(0, 7, (chains, 1, 5))
    return np.sin(angle) + 0.1 * rng.normal(size=(chains, draws, 5))


def of_one_number(chains, draws, rng):
    """Chains of many quantities that all depend on one."""
    one = ar1(0.9, chains, draws, 1, rng.integers(2**31))
    return np.tanh(one @ rng.normal(size=(1, 50)))


INDEPENDENT = {
    "white": lambda c, d, r: r.normal(size=(c, d, 5)),
    "walk": lambda c, d, r: np.cumsum(r.normal(size=(c, d, 5)), axis=1),
    "slow": lambda c, d, r: ar1(0.999, c, d, 5, r.integers(2**31)),
    "smooth": lambda c, d, r: np.cumsum(
        np.cumsum(r.normal(size=(c, d, 5)), axis=1), axis=1
    ),
    "heavy": lambda c, d, r: np.cumsum(r.standard_cauchy((c, d, 5)), axis=1),
    "drifting": drifting,
    "swinging": swinging,
    "of one number": of_one_number,
}


@pytest.mark.parametrize("kind", INDEPENDENT)
def test_independent_chains_cause_no_warning(kind):
    rng = np.random.default_rng(0)
    for chains, draws in ((2, 4), (2, 100), (3, 12), (8, 10), (8, 60)):
        for _ in range(30):
            steps = SharedSteps()
            steps.add(INDEPENDENT[kind](chains, draws, rng))
            assert not steps.found, (chains, draws, steps.z)


def test_statistic_has_the_tail_of_its_law():
    # Independent symmetric steps: P(z > a) <= exp(-a^2 / 2).
    rng = np.random.default_rng(0)
    found = []
    for _ in range(2000):
        steps = SharedSteps()
        steps.add(np.cumsum(rng.standard_t(3, size=(3, 20, 2)), axis=1))
        found.append(steps.z)
    for a in (1.0, 2.0, 3.0):
        bound = np.exp(-(a**2) / 2)
        stderr = np.sqrt(bound / len(found))
        assert np.mean(np.array(found) > a) < bound + 5 * stderr
