"""Stacked samples are the samples of the seeds, as a plain loop makes them."""

import keras
import numpy as np
import pytest

from keras_bdl.posteriors import Ensemble
from keras_bdl.posteriors import Gaussian
from keras_bdl.posteriors import LowRankGaussian
from keras_bdl.posteriors import MatrixNormal
from keras_bdl.posteriors import Mixture
from keras_bdl.posteriors import _gaussian
from keras_bdl.posteriors import _stacked
from keras_bdl.posteriors import load
from keras_bdl.posteriors._gaussian import KroneckerBlock

RNG = np.random.default_rng(0)
SHAPES = [(3, 50), (50,), (50, 2), (2,)]
SEEDS = [7, 2**63, 0, 12345, 6]
RANK = 4
SCALE = np.float32(0.7)


def network():
    return keras.Sequential(
        [
            keras.Input((3,)),
            keras.layers.Dense(50),
            keras.layers.Dense(2),
        ]
    )


def arrays(low=-1.0):
    return [RNG.uniform(low, 1.0, s).astype("float32") for s in SHAPES]


def moments():
    """Means, and variances: the second is zero, the last is `None`."""
    variance = arrays(0.1)
    variance[1][...] = 0.0
    variance[3] = None
    return arrays(), variance


def rows(posterior, model, **kwargs):
    """The samples as arrays of variable and sample, `None` if shared."""
    found = posterior.stacked(model, SEEDS, **kwargs)
    varying = {id(v): np.asarray(t) for v, t in found.varying}
    shared = {id(v): np.asarray(t) for v, t in found.shared}
    assert not varying.keys() & shared.keys()
    variables = posterior.variables(model)
    assert {id(v) for v in variables} == varying.keys() | shared.keys()
    return [varying.get(id(v)) for v in variables]


@pytest.fixture(params=["whole", "in blocks and threads"])
def split(request, monkeypatch):
    if request.param != "whole":
        monkeypatch.setattr(_gaussian, "BLOCK", 64)
        monkeypatch.setattr(_stacked, "_FEWEST", 1)
        monkeypatch.setattr("os.cpu_count", lambda: 2)


@pytest.mark.usefixtures("split")
def test_gaussian_samples_are_the_numbers_of_their_own_generator():
    mean, variance = moments()
    found = rows(Gaussian(mean, variance, scale=SCALE), network())
    assert found[1] is None and found[3] is None
    for row, seed in enumerate(SEEDS):
        rng = np.random.default_rng(np.random.SeedSequence(seed))
        for i in (0, 1, 2):  # the numbers of the second are passed over
            z = rng.standard_normal(SHAPES[i], dtype="float32")
            if i != 1:
                expected = mean[i] + z * np.sqrt(variance[i]) * np.sqrt(SCALE)
                np.testing.assert_array_equal(found[i][row], expected)


@pytest.mark.usefixtures("split")
@pytest.mark.parametrize("block", [False, True])
def test_low_rank_samples_are_the_numbers_of_their_own_generator(block):
    mean, variance = moments()
    columns = [RNG.normal(size=(RANK, *s)).astype("float32") for s in SHAPES]
    posterior = LowRankGaussian(
        mean, variance, columns, scale=SCALE, block=block
    )
    found = rows(posterior, network())
    for row, seed in enumerate(SEEDS):
        rng = np.random.default_rng(np.random.SeedSequence(seed))
        z2 = rng.standard_normal(RANK)
        for i, shape in enumerate(SHAPES):
            noise = np.zeros(shape)
            if variance[i] is not None:
                z1 = rng.standard_normal(shape, dtype="float32")
                noise += z1 * np.sqrt(variance[i])
            if block and i:
                z2 = rng.standard_normal(RANK)
            noise += np.tensordot(z2, columns[i], 1) / np.sqrt(RANK - 1)
            expected = mean[i] + np.sqrt(SCALE) * noise
            np.testing.assert_allclose(found[i][row], expected, 1e-5, 1e-6)


@pytest.mark.usefixtures("split")
def test_matrix_samples_are_the_numbers_of_their_own_generator():
    mean, variance = moments()
    variance[2] = None
    basis = [np.linalg.qr(RNG.normal(size=(n, n)))[0] for n in (51, 2)]
    values = RNG.uniform(0.1, 1.0, (51, 2))
    matrix = KroneckerBlock(2, 3, *basis, values)
    posterior = MatrixNormal(mean, [matrix], variance=variance, scale=SCALE)
    found = rows(posterior, network())
    for row, seed in enumerate(SEEDS):
        rng = np.random.default_rng(np.random.SeedSequence(seed))
        z = [rng.standard_normal(s, dtype="float32") for s in SHAPES[:2]]
        draw = rng.standard_normal((51, 2), dtype="float32")
        draw = basis[0] @ (draw * np.sqrt(values)) @ basis[1].T
        noises = [z[0] * np.sqrt(variance[0]), None, draw[:-1], draw[-1]]
        for i in (0, 2, 3):
            expected = mean[i] + np.sqrt(SCALE) * noises[i]
            np.testing.assert_allclose(found[i][row], expected, 1e-4, 1e-5)


def posteriors(tmp_path):
    mean, variance = moments()
    gaussian = Gaussian(mean, variance)
    members = [arrays() for _ in range(3)]
    for member in members:
        member[2] = members[0][2]
    ensemble = Ensemble(members)
    ensemble.save(tmp_path / "ensemble.bdl")
    streamed = load(tmp_path / "ensemble.bdl", stream=True)
    mixture = Mixture([gaussian, ensemble, LowRankGaussian(*moments())])
    return gaussian, ensemble, streamed, mixture


def test_stacked_samples_are_those_of_sample(tmp_path):
    model = network()
    for posterior in posteriors(tmp_path):
        found = posterior.stacked(model, SEEDS)
        for row, seed in enumerate(SEEDS):
            values = {id(v): np.asarray(x) for v, x in found.sample(row)}
            for v, x in zip(model.weights, posterior.sample(seed), strict=True):
                np.testing.assert_array_equal(values[id(v)], x)


def test_only_weights_that_differ_are_stacked(tmp_path):
    model = network()
    gaussian, ensemble, streamed, _ = posteriors(tmp_path)
    for posterior, places in (
        (gaussian, [0, 2]),
        (gaussian.with_scale(0.0), []),
        (ensemble, [0, 1, 3]),
        (streamed, [0, 1, 3]),
    ):
        found = rows(posterior, model)
        assert [i for i, x in enumerate(found) if x is not None] == places


def test_centered_samples_are_those_minus_the_mean():
    mean, variance = moments()
    posterior = Gaussian(mean, variance)
    plain = rows(posterior, network())
    centered = rows(posterior, network(), centered=True)
    for i in (0, 2):
        np.testing.assert_allclose(centered[i], plain[i] - mean[i], atol=1e-6)
    one_by_one = super(Gaussian, posterior).stacked(
        network(), SEEDS, centered=True
    )
    for (_, x), i in zip(one_by_one.varying, (0, 2), strict=True):
        np.testing.assert_allclose(x, plain[i] - mean[i], atol=1e-6)


def test_a_stack_is_not_copied_when_it_becomes_a_tensor():
    array = _stacked.aligned_empty((2, 1000), "float32")
    array[...] = 1.0
    tensor = _stacked.adopted(array)
    array[1, 3] = 5.0
    assert tensor[1, 3] == 5.0
