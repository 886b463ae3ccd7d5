import json

import numpy as np
import pytest
from scipy import linalg
from sklearn.utils.extmath import randomized_svd

from keras_bdl.diagnostics import posterior_eigenvectors
from keras_bdl.diagnostics import projected_covariance
from keras_bdl.extend import project_weights
from keras_bdl.posteriors import Ensemble
from keras_bdl.posteriors import Gaussian
from keras_bdl.posteriors import LowRankGaussian

# Of more weights than are decomposed densely, and than one block of columns.
SMALL, LARGE = [(5, 4), (4,)], [(150, 120), (120,)]
RANK = 4


def moments(shapes):
    rng = np.random.default_rng(0)
    mean = [rng.standard_normal(s) for s in shapes]
    variance = [rng.uniform(0.1, 1.0, s) for s in shapes]
    columns = [rng.standard_normal((RANK, *s)).astype("f") for s in shapes]
    return mean, variance, columns


def flat(arrays):
    return np.concatenate([np.ravel(a) for a in arrays])


def matrix(columns):
    return np.concatenate([c.reshape(RANK, -1) for c in columns], 1).T


def parts(block):
    """Returns both parts of the covariance with the paper's scale."""
    _, variance, columns = moments(SMALL)
    low_rank = matrix(columns) @ matrix(columns).T / (RANK - 1)
    if block:
        ones = [np.ones(s) for s in ((20, 20), (4, 4))]
        low_rank = low_rank * linalg.block_diag(*ones)
    return 0.5 * np.diag(flat(variance)), 0.5 * low_rank


@pytest.mark.parametrize("block", [False, True])
@pytest.mark.parametrize("part", ["low_rank", "all"])
def test_eigenvectors_equal_those_of_the_dense_covariance(part, block):
    diagonal, low_rank = parts(block)
    expected = low_rank if part == "low_rank" else diagonal + low_rank
    values, vectors = np.linalg.eigh(expected)
    posterior = LowRankGaussian(*moments(SMALL), block=block)
    found = posterior_eigenvectors(posterior, count=3, part=part)
    np.testing.assert_allclose(found.values, values[:-4:-1], rtol=1e-6)
    cosines = np.sum(found.vectors * vectors.T[:-4:-1], 1)
    np.testing.assert_allclose(np.abs(cosines), 1, rtol=1e-6)
    for vector in found.vectors:
        assert vector[np.abs(vector).argmax()] > 0
    assert found.trace == pytest.approx(np.trace(diagonal + low_rank))
    assert [d[0].shape for d in found.directions(0, 2)] == [(5, 4)] * 2
    np.testing.assert_array_equal(
        flat(found.directions(2)[0]), found.vectors[2]
    )


def test_eigenvectors_equal_a_randomized_svd_of_the_deviations():
    columns = moments(LARGE)[2]
    _, singular, vectors = randomized_svd(
        matrix(columns).T.astype("d"), 3, random_state=0
    )
    posterior = LowRankGaussian(*moments(LARGE))
    found = posterior_eigenvectors(posterior, count=3)
    expected = 0.5 * singular**2 / (RANK - 1)
    np.testing.assert_allclose(found.values, expected, rtol=1e-6)
    cosines = np.abs(np.sum(found.vectors * vectors, 1))
    np.testing.assert_allclose(cosines, 1, rtol=1e-6)


def test_eigenvectors_of_a_large_covariance_satisfy_their_equation():
    mean, variance, columns = moments(LARGE)
    found = posterior_eigenvectors(
        LowRankGaussian(mean, variance, columns), count=2, part="all"
    )
    diagonal, columns = flat(variance).astype("f"), matrix(columns)
    for value, vector in zip(found.values, found.vectors, strict=True):
        product = 0.5 * diagonal * vector
        product += 0.5 * columns @ (columns.T @ vector) / (RANK - 1)
        np.testing.assert_allclose(product, value * vector, atol=1e-4)
    assert np.dot(*found.vectors) == pytest.approx(0, abs=1e-8)


def test_eigenvectors_of_a_diagonal_posterior_are_the_axes():
    mean = [np.zeros((5, 6)), np.zeros(2)]
    variance = np.arange(30.0).reshape(5, 6)
    found = posterior_eigenvectors(
        Gaussian(mean, [variance, None], scale=2.0), count=2, part="all"
    )
    np.testing.assert_allclose(found.values, [58, 56], rtol=1e-9)
    np.testing.assert_allclose(np.abs(found.vectors[1, 28]), 1, rtol=1e-9)


def test_projected_covariance_equals_the_dense_one_and_that_of_samples():
    posterior = LowRankGaussian(*moments(SMALL), scale=0.5)
    directions = np.random.default_rng(1).standard_normal((2, 24))
    found = projected_covariance(posterior, directions)
    units = directions / np.linalg.norm(directions, axis=1, keepdims=True)
    expected = units @ sum(parts(False)) @ units.T
    np.testing.assert_allclose(found, expected, rtol=1e-6)
    draws = [posterior.sample(seed) for seed in range(4000)]
    seen = project_weights(draws, directions, posterior.mean())
    variances = np.diag(expected)
    error = np.sqrt(2 / 4000) * np.sqrt(np.outer(variances, variances))
    assert (np.abs(np.cov(seen.T) - expected) < 5 * error).all()
    error = np.sqrt(variances / 4000)
    assert (np.abs(seen.mean(0)) < 5 * error).all()


def test_report_prints_and_saves_its_numbers():
    found = posterior_eigenvectors(LowRankGaussian(*moments(SMALL)), count=2)
    assert "low-rank part of the covariance of 24 weights, rank 4" in str(found)
    assert json.loads(json.dumps(found.to_dict()))["values"] == found.values
    assert found["rank"] == 4


def test_wrong_input_is_refused():
    mean, variance, columns = moments(SMALL)
    posterior = LowRankGaussian(mean, variance, columns)
    twins = LowRankGaussian(mean, None, [c[[0, 0, 0]] for c in columns])
    gaussian, ensemble = Gaussian(mean, variance), Ensemble([mean])
    for message, wrong, options in (
        ("must be a `keras_bdl.post", ensemble, {}),
        ("needs a posterior with columns", gaussian, {}),
        ("at most 1, the rank", twins, {"count": 2}),
        ("at most 24", posterior, {"count": 25, "part": "all"}),
        ("positive integer", posterior, {"count": 0}),
        ("one of .'low_rank', 'all'", posterior, {"part": "a"}),
    ):
        with pytest.raises(ValueError, match=message):
            posterior_eigenvectors(wrong, **options)
    for message, function, arguments in (
        ("must be a list of dir", projected_covariance, [posterior, []]),
        ("must have the shapes", projected_covariance, [posterior, [mean[:1]]]),
        ("must be a list of arrays", projected_covariance, [posterior, [1.0]]),
        (
            "must not be zero",
            projected_covariance,
            [posterior, np.zeros((1, 24))],
        ),
        ("must be a list of netw", project_weights, [[], mean, mean]),
        (r"`center` must", project_weights, [[mean], [mean], mean[::-1]]),
    ):
        with pytest.raises(ValueError, match=message):
            function(*arguments)
    with pytest.raises(ValueError, match="from 0 to 0. Received: 1"):
        posterior_eigenvectors(posterior, count=1).directions(1)
