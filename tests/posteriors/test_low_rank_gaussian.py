import tracemalloc

import numpy as np
import pytest
from scipy import stats

from keras_bdl.posteriors import LowRankGaussian

SHAPES = [(2, 3), (2,)]
SIZE = 8
RANK = 4
N = 20_000
SCALE = 0.5


def moments(seed=0):
    rng = np.random.default_rng(seed)
    mean = [rng.standard_normal(s) for s in SHAPES]
    variance = [rng.uniform(0.1, 1.0, s) for s in SHAPES]
    columns = [rng.standard_normal((RANK, *s)) for s in SHAPES]
    return mean, variance, columns


def flat(arrays):
    return np.concatenate([np.ravel(a) for a in arrays])


def covariance():
    _, variance, columns = moments()
    matrix = np.concatenate([c.reshape(RANK, -1) for c in columns], axis=1).T
    return SCALE * (np.diag(flat(variance)) + matrix @ matrix.T / (RANK - 1))


@pytest.fixture(scope="module")
def draws():
    posterior = LowRankGaussian(*moments(), scale=SCALE)
    return np.stack([flat(posterior.sample(seed)) for seed in range(N)])


def assert_covariance(draws, expected):
    variances = np.diag(expected)
    error = np.sqrt((np.outer(variances, variances) + expected**2) / len(draws))
    assert (np.abs(np.cov(draws.T) - expected) < 5 * error).all()


def test_draws_have_the_mean_and_covariance_of_the_formula(draws):
    error = np.sqrt(np.diag(covariance()) / N)
    assert (np.abs(draws.mean(0) - flat(moments()[0])) < 5 * error).all()
    assert_covariance(draws, covariance())


def test_mahalanobis_distances_are_chi_square(draws):
    deviations = draws - flat(moments()[0])
    distances = np.einsum(
        "ni,ij,nj->n", deviations, np.linalg.inv(covariance()), deviations
    )
    covered = np.mean(distances < stats.chi2.ppf(0.95, SIZE))
    assert 0.94 < covered < 0.96


def test_blocks_have_their_covariance_and_none_with_each_other():
    posterior = LowRankGaussian(*moments(), scale=SCALE, block=True)
    draws = [flat(posterior.sample(seed)) for seed in range(N // 4)]
    expected = covariance()
    expected[:6, 6:] = expected[6:, :6] = 0.0
    assert_covariance(np.stack(draws), expected)


@pytest.mark.parametrize("columns", [None, [np.zeros((0, *s)) for s in SHAPES]])
def test_without_columns_the_covariance_is_diagonal(columns):
    mean, variance, _ = moments()
    posterior = LowRankGaussian(mean, variance, columns, scale=SCALE)
    draws = [flat(posterior.sample(seed)) for seed in range(N // 4)]
    assert posterior.rank == 0
    assert_covariance(np.stack(draws), SCALE * np.diag(flat(variance)))


def test_scale_zero_draws_the_mean_exactly():
    posterior = LowRankGaussian(*moments(), scale=0.0)
    np.testing.assert_array_equal(
        flat(posterior.sample(1)), flat(posterior.mean())
    )


def test_another_scale_is_another_factor_of_the_same_draw():
    one = LowRankGaussian(*moments(), scale=1.0)
    mean = flat(one.mean())
    np.testing.assert_allclose(
        flat(one.with_scale(0.25).sample(7)) - mean,
        0.5 * (flat(one.sample(7)) - mean),
        rtol=1e-6,
        atol=1e-6,
    )


def test_half_precision_columns_change_the_draw_by_their_rounding():
    mean, variance, columns = moments()
    half = [c.astype("float16") for c in columns]
    posterior = LowRankGaussian(mean, variance, half)
    rounded = [h.astype("float32") for h in half]
    np.testing.assert_array_equal(
        flat(posterior.sample(0)),
        flat(LowRankGaussian(mean, variance, rounded).sample(0)),
    )


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_sampling_copies_the_mean_a_few_times_and_not_the_columns(dtype):
    size, rank = 2**20, 20
    mean = [np.zeros(size, "float32")]
    posterior = LowRankGaussian(
        mean, [np.ones(size, "float32")], [np.ones((rank, size), dtype)]
    )
    posterior.sample(0)
    tracemalloc.start()
    posterior.sample(1)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 4 * mean[0].nbytes


def test_one_column_is_refused():
    mean, variance, columns = moments()
    with pytest.raises(ValueError, match="at least 2 columns.*Received: 1"):
        LowRankGaussian(mean, variance, [c[:1] for c in columns])


def test_columns_that_do_not_fit_are_refused():
    mean, variance, columns = moments()
    with pytest.raises(ValueError, match=r"deviations\[1\] of shape \(3, 2\)"):
        LowRankGaussian(mean, variance, [columns[0], columns[1][:3]])
    columns[1][2, 0] = np.nan
    with pytest.raises(ValueError, match=r"NaN or infinity in deviations\[1\]"):
        LowRankGaussian(mean, variance, columns)
