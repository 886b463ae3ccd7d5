import json

import numpy as np
import pytest

from keras_bdl.diagnostics import WeightChains
from keras_bdl.diagnostics import convergence
from keras_bdl.diagnostics import effective_sample_size
from keras_bdl.diagnostics import potential_scale_reduction
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
