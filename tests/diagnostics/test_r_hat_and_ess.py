import numpy as np
import pytest
import scipy.stats
from tensorflow_probability import mcmc

from keras_bdl.diagnostics import _r_hat_and_ess
from keras_bdl.extend import autocorrelation
from keras_bdl.extend import effective_sample_size
from keras_bdl.extend import potential_scale_reduction
from tests.diagnostics.series import ar1
from tests.helpers import assert_moment

STATISTICS = [effective_sample_size, potential_scale_reduction]


def drifting(draws):
    """Returns chains whose places differ more from quantity to quantity."""
    x = ar1(0.5, 3, draws, 20)
    return x + np.arange(3)[:, None, None] * np.linspace(0, 2, 20)


def split_r_hat(x):
    """Gelman and Rubin's formula for one quantity, `(chains, samples)`."""
    half = x.shape[1] // 2
    halves = [h for c in x for h in (c[-2 * half : -half], c[-half:])]
    n, m = half, len(halves)
    means = [np.mean(h) for h in halves]
    between = n / (m - 1) * sum((a - np.mean(means)) ** 2 for a in means)
    within = sum(
        sum((h - a) ** 2) / (n - 1) for h, a in zip(halves, means, strict=True)
    )
    within /= m
    return np.sqrt(((n - 1) / n * within + between / n) / within)


def normal_scores(x):
    ranks = scipy.stats.rankdata(x).reshape(x.shape)
    return scipy.stats.norm.ppf((ranks - 3 / 8) / (x.size + 1 / 4))


@pytest.mark.parametrize("phi", [-0.5, 0.0, 0.5, 0.9])
def test_ess_of_an_autoregression_follows_from_its_correlation(phi):
    # 1 + 2 sum_k phi^k = (1 + phi) / (1 - phi)
    expected = 4 * 4000 * (1 - phi) / (1 + phi)
    ratio = effective_sample_size(ar1(phi, 4, 4000, 15)) / expected
    assert_moment(ratio.mean(), 1.0, ratio.std() / np.sqrt(15))


@pytest.mark.parametrize("draws", [4, 7, 60])
def test_ess_equals_that_of_tensorflow_probability(draws):
    x = drifting(draws)
    reference = mcmc.effective_sample_size(
        np.swapaxes(x, 0, 1),
        filter_beyond_positive_pairs=True,
        cross_chain_dims=1,
    ).numpy()
    most = 3 * draws * np.log10(3 * draws)
    reference[(reference < 0) | (reference > most)] = most
    np.testing.assert_allclose(effective_sample_size(x), reference)


def test_chains_that_never_meet_are_worth_one_sample_each():
    x = ar1(0.0, 5, 400, 1) * 1e-4 + np.arange(5)[:, None, None]
    np.testing.assert_allclose(effective_sample_size(x), [5.0], rtol=1e-3)


def test_alternating_samples_have_a_finite_ess():
    x = np.tile([1.0, -1.0], (2, 8))
    assert effective_sample_size(x) == pytest.approx(32 * np.log10(32))


@pytest.mark.parametrize("draws", [4, 7, 60])
def test_r_hat_is_the_formula_of_gelman_and_rubin_on_halves(draws):
    x = drifting(draws)
    expected = [split_r_hat(x[..., i]) for i in range(20)]
    np.testing.assert_allclose(potential_scale_reduction(x), expected)


@pytest.mark.parametrize("draws", [4, 60])
def test_rank_normalized_r_hat_is_the_larger_of_scores_and_distances(draws):
    x = np.round(drifting(draws), 1)  # some draws are equal
    expected = [
        max(
            split_r_hat(normal_scores(one)),
            split_r_hat(normal_scores(abs(one - np.median(one)))),
        )
        for one in np.moveaxis(x, -1, 0)
    ]
    np.testing.assert_allclose(
        potential_scale_reduction(x, rank_normalized=True), expected
    )


def test_r_hat_detects_means_and_drifts_and_by_ranks_variances():
    x = ar1(0.0, 4, 500, 4)
    x[3, :, 1] += 1.0
    x[..., 2] += np.linspace(0, 2, 500)  # alike in every chain
    x[3, :, 3] *= 5.0
    flagged = potential_scale_reduction(x) > 1.05
    np.testing.assert_array_equal(flagged, [False, True, True, False])
    flagged = potential_scale_reduction(x, rank_normalized=True) > 1.05
    np.testing.assert_array_equal(flagged, [False, True, True, True])


def test_constant_chains_at_different_places_have_a_huge_r_hat():
    x = np.tile([[0.1], [0.2], [0.7]], (1, 8))
    assert potential_scale_reduction(x) > 1e6
    assert effective_sample_size(x) == pytest.approx(3.0)


def test_autocorrelation_equals_numpy_and_is_nan_for_a_constant_chain():
    x = ar1(0.7, 3, 41, 2)
    x[2, :, 1] = 0.1
    rho = autocorrelation(x, max_lag=40)
    for c, q in np.ndindex(3, 2):
        z = x[c, :, q] - x[c, :, q].mean()
        expected = np.correlate(z, z, "full")[40:] / np.sum(z * z)
        if (c, q) == (2, 1):
            expected = np.full(41, np.nan)
        np.testing.assert_allclose(rho[c, :, q], expected, atol=1e-12)
    assert autocorrelation(x).shape == (3, 21, 2)
    with pytest.raises(ValueError, match="`max_lag` must be below.*41"):
        autocorrelation(x, max_lag=41)


@pytest.mark.parametrize("statistic", STATISTICS)
def test_quantities_keep_their_shape_for_any_block_size(statistic, monkeypatch):
    x = drifting(8)[..., :6]
    whole = statistic(x)
    monkeypatch.setattr(_r_hat_and_ess, "_BLOCK", 3 * 8 * 4)
    np.testing.assert_array_equal(
        statistic(x.reshape(3, 8, 2, 3)), whole.reshape(2, 3)
    )
    assert statistic(x[..., 0]) == pytest.approx(whole[0])


@pytest.mark.parametrize("statistic", STATISTICS)
@pytest.mark.parametrize(
    ("chains", "match"),
    [
        (np.ones((1, 9, 2)), r"at least 2 chains.*shape \(1, 9, 2\)"),
        (np.ones((2, 3)), r"at least 4 samples.*shape \(2, 3\)"),
        (np.ones(9), r"shape \(9,\)"),
        ([[1.0, 2.0, 3.0, 4.0], [1.0]], "rows of different lengths"),
        ([["a"] * 4] * 2, "no numbers"),
        (np.where(np.arange(16).reshape(2, 8) == 9, np.nan, 1.0), r"chain \[1"),
        (np.full((2, 4), np.inf), r"infinity in chain \[0, 1\]"),
        (
            np.stack([np.arange(8.0).reshape(2, 4), np.full((2, 4), 7.0)], -1),
            r"vary.*quantity \(1,\), always 7",
        ),
        (np.zeros((2, 4)), r"quantity \(\), always 0"),
    ],
)
def test_chains_without_information_raise_an_error(statistic, chains, match):
    with pytest.raises(ValueError, match=f"`chains` must.*{match}"):
        statistic(chains)
