"""Every kind of posterior keeps the promises of `Posterior`."""

import functools
import pickle

import keras
import numpy as np
import pytest

from keras_bdl._saving._storage_path import StoragePath
from keras_bdl.layers import MeanFieldDense
from keras_bdl.posteriors import Ensemble
from keras_bdl.posteriors import Gaussian
from keras_bdl.posteriors import Laplace
from keras_bdl.posteriors import Layerwise
from keras_bdl.posteriors import MatrixNormal
from keras_bdl.posteriors import MCDropout
from keras_bdl.posteriors import Mixture
from keras_bdl.posteriors import load
from keras_bdl.posteriors._gaussian import KroneckerBlock
from tests.helpers import assert_equal
from tests.posteriors.networks import arrays_like
from tests.posteriors.networks import gaussian
from tests.posteriors.networks import low_rank
from tests.posteriors.networks import network
from tests.posteriors.networks import values


def variational(units=3, **kwargs):
    return keras.Sequential(
        [
            keras.Input((2,)),
            MeanFieldDense(units, dataset_size=10, **kwargs),
            keras.layers.BatchNormalization(**kwargs),
            keras.layers.Dropout(0.5, **kwargs),
        ]
    )


def without_matrix(arrays):
    """Keeps the arrays of the variables after the first kernel and bias."""
    return [None, None, *arrays[2:]]


def matrix_normal(model):
    variables = model.trainable_variables
    rotation, _ = np.linalg.qr(arrays_like(variables)[0].T @ np.ones((2, 3)))
    first = KroneckerBlock(0, 1, rotation, np.eye(3), np.ones((3, 3)))
    return MatrixNormal(
        arrays_like(variables),
        [first],
        variance=without_matrix([np.ones(v.shape) for v in variables]),
        scale=0.3,
        names=[v.name for v in variables],
        trained_under_draws=True,
    )


def laplace(model):
    variables = model.trainable_variables
    first = KroneckerBlock.of_factors(
        0, 1, inputs=np.eye(3), outputs=2.0 * np.eye(3), dtype="float32"
    )
    return Laplace(
        arrays_like(variables),
        without_matrix([np.ones(v.shape) for v in variables]),
        [first],
        prior_precision=2.0,
        temperature=0.5,
        scale=0.7,
        names=[v.name for v in variables],
        log_likelihood=-3.0,
    )


def point(model):
    variables = model.trainable_variables
    names = [v.name for v in variables]
    return Gaussian(arrays_like(variables), names=names)


def ensemble(model):
    others = [keras.models.clone_model(model) for _ in range(2)]
    return Ensemble.from_models([model, *others])


KINDS = {
    "Gaussian": gaussian,
    "Gaussian without variance": point,
    "LowRankGaussian": lambda m: low_rank(m, scale=0.3),
    "LowRankGaussian by block": lambda m: low_rank(m, block=True),
    "LowRankGaussian without columns": lambda m: low_rank(m, rank=0),
    "MatrixNormal": matrix_normal,
    "Laplace": laplace,
    "Ensemble": ensemble,
    "Mixture": lambda m: Mixture([gaussian(m), low_rank(m)], [1, 2]),
    "Mixture of unlike": lambda m: Mixture([gaussian(m), MCDropout()]),
    "Layerwise": Layerwise,
    "MCDropout": lambda m: MCDropout(),
}
# These have no list of arrays for a sample.
NO_ARRAYS = ("MCDropout", "Mixture of unlike")
HAVE_ARRAYS = [kind for kind in KINDS if kind not in NO_ARRAYS]


def architecture(kind, **kwargs):
    return (variational if kind == "Layerwise" else network)(**kwargs)


def build(kind, **kwargs):
    model = architecture(kind, **kwargs)
    return model, KINDS[kind](model)


@functools.cache
def built(kind):
    """Returns what all tests share, since each test restores the model."""
    return build(kind)


def drawn(posterior, model, seed):
    """Returns all variables of a model that holds a sample."""
    with posterior.sampled(model, seed):
        return values(model.variables)


def forbidden(*args, **kwargs):
    raise AssertionError("a posterior was pickled")


@pytest.mark.parametrize("kind", KINDS)
def test_a_file_without_pickle_holds_the_whole_posterior(
    kind, tmp_path, monkeypatch
):
    model, posterior = built(kind)
    for name in ("dump", "dumps", "load", "loads", "Pickler", "Unpickler"):
        monkeypatch.setattr(pickle, name, forbidden)
    other = architecture(kind, units=4)
    bucket = f"ram://contracts/{kind}"
    for folder, stream in ((tmp_path, False), (bucket, True)):
        path = StoragePath(folder) / "p.bdl"
        posterior.save(path)
        loaded = load(path, stream=stream)
        loaded.check(model)
        assert type(loaded) is type(posterior)
        assert repr(loaded) == repr(posterior)
        if posterior.structure is not None:
            assert loaded.structure.names == posterior.structure.names
            assert loaded.structure.shapes == posterior.structure.shapes
            with pytest.raises(ValueError, match=r"Received: .*\(2, 4\)"):
                loaded.check(other)
        assert loaded.trained_under_draws == posterior.trained_under_draws
        for seed in posterior.seeds(0, 3):
            assert_equal(
                drawn(loaded, model, seed), drawn(posterior, model, seed)
            )
            for ask in ("needs_batch_norm", "drops"):
                assert getattr(loaded, ask)(seed) == getattr(posterior, ask)(
                    seed
                )


@pytest.mark.parametrize("kind", KINDS)
def test_a_seed_of_any_size_selects_one_sample(kind):
    model, posterior = built(kind)
    first, again, other = (
        drawn(posterior, model, s) for s in (2**70, 2**70, 5)
    )
    assert_equal(first, again)
    differ = not all(map(np.array_equal, first, other))
    assert differ == (not posterior.is_point)


@pytest.mark.parametrize("kind", KINDS)
def test_anything_but_an_integer_from_zero_is_refused_as_a_seed(kind):
    model, posterior = built(kind)
    before = values(model.variables)
    for seed in (-1, 1.0, None, True):
        with pytest.raises(ValueError, match="`seed` must be an integer"):
            drawn(posterior, model, seed)
        if kind in HAVE_ARRAYS:
            with pytest.raises(ValueError, match="`seed` must be an integer"):
                posterior.sample(seed)
    assert_equal(values(model.variables), before)


@pytest.mark.parametrize("kind", KINDS)
def test_everything_comes_back_after_an_error(kind):
    model, posterior = built(kind)
    before = values(model.variables)
    sample = posterior.sample(3) if kind in HAVE_ARRAYS else []
    variables = posterior.variables(model) if kind in HAVE_ARRAYS else []
    with pytest.raises(KeyError):
        with posterior.sampled(model, seed=3) as same:
            assert same is model
            assert_equal(values(variables), sample)
            # Moves the BatchNorm statistics and the seed of the dropout.
            model(np.ones((4, 2)), training=True)
            inside = values(model.non_trainable_variables)
            raise KeyError
    after = values(model.non_trainable_variables)
    assert not any(map(np.array_equal, inside, after))
    assert_equal(values(model.variables), before)


@pytest.mark.parametrize("kind", KINDS)
def test_samples_in_one_block_do_not_depend_on_each_other(kind):
    model, posterior = built(kind)
    before = values(model.variables)
    expected = {seed: drawn(posterior, model, seed) for seed in (1, 2)}
    with posterior.drawing(model) as draw:
        for seed in (1, 2, 1):
            draw(seed)
            assert_equal(values(model.variables), expected[seed])
    assert_equal(values(model.variables), before)


@pytest.mark.parametrize("kind", HAVE_ARRAYS)
def test_the_mean_is_the_average_of_the_samples(kind):
    model, posterior = built(kind)
    samples = zip(*map(posterior.sample, posterior.seeds(0, 48)), strict=True)
    mean = posterior.mean()
    for m, v in zip(mean, posterior.variables(model), strict=True):
        assert m.shape == tuple(v.shape)
    for m, s in zip(mean, map(np.stack, samples), strict=True):
        error = s.std(0, ddof=1) / np.sqrt(len(s)) if len(s) > 1 else 0.0
        assert (np.abs(s.mean(0) - m) <= 5 * error + 1e-6).all()


@pytest.mark.parametrize("kind", HAVE_ARRAYS)
def test_writing_into_a_sample_does_not_change_the_posterior(kind):
    _, posterior = built(kind)
    mean = [m.copy() for m in posterior.mean()]
    before = [x.copy() for x in posterior.sample(0)]
    for array in (*posterior.sample(0), *posterior.mean()):
        try:
            array[...] = 9.0
        except ValueError as error:
            assert "read-only" in str(error)
    assert_equal(posterior.mean(), mean)
    assert_equal(posterior.sample(0), before)


def test_masks_have_neither_samples_nor_a_mean():
    with pytest.raises(TypeError, match="draws masks, not weights"):
        MCDropout().sample(0)
    with pytest.raises(TypeError, match="has no mean of weights"):
        MCDropout().mean()


@pytest.mark.parametrize("kind", KINDS)
def test_a_mixture_of_one_is_its_component(kind):
    model, posterior = built(kind)
    mixture = Mixture([posterior])
    assert mixture.is_point == posterior.is_point
    assert len(mixture.seeds(0, 3)) == len(posterior.seeds(0, 3))
    for seed in (1, 2):
        assert_equal(drawn(mixture, model, seed), drawn(posterior, model, seed))
        assert mixture.needs_batch_norm(seed) == posterior.needs_batch_norm(
            seed
        )
        assert mixture.drops(seed) == posterior.drops(seed)


@pytest.mark.parametrize(
    ("kind", "dtype"),
    [("Gaussian", "bfloat16"), *((kind, "float16") for kind in HAVE_ARRAYS)],
)
def test_variables_of_half_precision_take_rounded_samples(kind, dtype):
    model, posterior = build(kind, dtype=dtype)
    before = values(model.variables)
    sample, variables = posterior.sample(0), posterior.variables(model)
    with posterior.sampled(model, seed=0):
        for v, x in zip(variables, sample, strict=True):
            expected = keras.ops.cast(x, v.dtype)
            np.testing.assert_array_equal(v.numpy(), expected)
        outputs = model(np.ones((2, 2)))
    assert keras.backend.standardize_dtype(outputs.dtype) == dtype
    assert_equal(values(model.variables), before)


@pytest.mark.parametrize("kind", NO_ARRAYS)
def test_outputs_under_dropout_stay_in_half_precision(kind):
    model, posterior = build(kind, dtype="float16")
    with posterior.sampled(model, seed=0):
        outputs = model(np.ones((2, 2)))
    assert keras.backend.standardize_dtype(outputs.dtype) == "float16"


@pytest.mark.parametrize("kind", KINDS)
def test_replicas_get_one_sample_and_their_own_statistics_back(kind, mirrored):
    with mirrored.scope():
        model, posterior = build(kind)
    mean = model.layers[1].moving_mean.value
    for replica, copy in enumerate(mean.values):
        copy.assign(np.full(3, replica))
    before = values(model.trainable_variables)
    with posterior.sampled(model, seed=0):
        for v in model.trainable_variables:
            first, second = (copy.numpy() for copy in v.value.values)
            np.testing.assert_array_equal(first, second)
        mean.assign(np.full(3, 7.0))
    assert_equal(values(model.trainable_variables), before)
    for replica, copy in enumerate(mean.values):
        np.testing.assert_array_equal(copy.numpy(), replica)


@pytest.mark.parametrize("kind", KINDS)
def test_a_model_of_another_architecture_is_refused(kind):
    _, posterior = built(kind)
    match = r"Variable 0, `.*kernel.*\(2, 3\)\. Received: .*\(2, 4\)"
    if kind == "MCDropout":
        match = "`model` must have a dropout layer"
        model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(3)])
    else:
        model = architecture(kind, units=4)
    before = values(model.variables)
    with pytest.raises(ValueError, match=match):
        with posterior.sampled(model, seed=0):
            raise AssertionError("the block must not run")
    with pytest.raises(ValueError, match=r"components\[0\]: .*" + match):
        Mixture([posterior]).check(model)
    assert_equal(values(model.variables), before)


@pytest.mark.parametrize("kind", KINDS)
def test_a_model_that_is_not_built_is_refused(kind):
    _, posterior = built(kind)
    model = keras.Sequential([keras.layers.Dense(3)])
    with pytest.raises(ValueError, match="`model` must be built"):
        posterior.check(model)
    with pytest.raises(ValueError, match="`model` must be built"):
        with posterior.sampled(model, 0):
            raise AssertionError("the block must not run")
