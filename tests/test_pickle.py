"""Pickles of callbacks and posteriors, as `joblib` uses them."""

import pickle

import keras
import numpy as np
import pytest

import keras_bdl as bdl
from keras_bdl import callbacks as cb
from keras_bdl import extend
from keras_bdl import posteriors
from keras_bdl._laplace import fit_laplace
from keras_bdl.objectives import TaylorVI
from tests.helpers import cross_entropy
from tests.processes import Command

X = np.random.default_rng(0).normal(size=(16, 3)).astype("float32")
Y = (X[:, 0] > 0).astype("int32")
LOSS = cross_entropy()


def fit(optimizer, *callbacks, layers=None, objective=None):
    layers = layers or [keras.layers.Dropout(0.5), keras.layers.Dense(2)]
    model = bdl.Sequential([keras.Input((3,)), *layers])
    model.compile(optimizer, LOSS, objective=objective)
    model.fit(X, Y, epochs=4, verbose=0, callbacks=list(callbacks))
    return model


def first_of(optimizer, **kwargs):
    model = fit(optimizer, **kwargs)
    return (model.objective or model.optimizer).posterior(model)


@pytest.fixture(scope="module")
def fitted(tmp_path_factory):
    """Returns callbacks after a `fit`, and posteriors, by name."""
    folder = tmp_path_factory.mktemp("fitted")
    of_weights = {
        "SWA": bdl.SWA(0),
        "SWAG": bdl.SWAG(0, rank=2),
        "SampleCollector": cb.SampleCollector(1),
        "on disk": cb.SampleCollector(1, directory=folder / "samples"),
        "EarlyStopping": cb.EarlyStopping(
            "loss", 0, 4, restore_best_weights=True
        ),
        "ChainDiagnostics": cb.ChainDiagnostics(verbose=0),
        "Checkpoint": cb.Checkpoint(folder / "run"),
    }
    sampler = bdl.SGHMC(1e-3, dataset_size=16)
    network = fit(sampler, *of_weights.values())
    of_layers = {
        "KLAnnealing": cb.KLAnnealing(2),
        "by step": cb.KLAnnealing(
            schedule=bdl.schedules.LinearRamp(0.0, 1.0, end_step=3)
        ),
        "PretrainMeans": cb.PretrainMeans(),
        "GradientVariance": cb.GradientVariance(
            (X[:4], Y[:4]), samples=2, every=4
        ),
    }
    layers = [bdl.layers.MeanFieldDense(2)]
    variational = fit("sgd", *of_layers.values(), layers=layers)
    masks = posteriors.MCDropout()
    bdl.predict(network, X, masks, samples=2, verbose=0)  # keeps a cache
    layerwise = posteriors.Layerwise(variational)
    swag, samples, on_disk = (
        of_weights[name].posterior
        for name in ("SWAG", "SampleCollector", "on disk")
    )
    found = {
        "LowRankGaussian": swag,
        "Gaussian": of_weights["SWA"].posterior,
        "Ensemble": samples,
        "Ensemble on disk": on_disk,
        "MCDropout": masks,
        "Layerwise": layerwise,
        "Mixture": posteriors.Mixture([swag, samples]),
        "MatrixNormal": first_of(bdl.NoisyKFAC()),
        "TaylorVI": first_of("sgd", objective=TaylorVI("scalar")),
        "Laplace": fit_laplace(network, (X, Y), prior_precision=1.0, verbose=0),
    }
    return {**of_weights, **of_layers}, found


# Of callbacks without `get_state`.
ATTRIBUTES = ("end_epoch", "schedule", "path", "rows")


def facts(name, kept):
    """Returns the comparable state of a callback or a posterior."""
    if isinstance(kept, bdl.extend.Posterior):
        return None if name == "MCDropout" else kept.sample(3)
    if isinstance(kept, cb.EarlyStopping):
        return [kept.best, kept.best_weights, kept._best_state]
    if isinstance(kept, extend.StatefulCallback) and name != "ChainDiagnostics":
        return kept.get_state()
    found = {k: v for k, v in vars(kept).items() if k in ATTRIBUTES}
    if found.get("schedule") is not None:
        found["schedule"] = found["schedule"].get_config()
    return found


def as_arrays(tree):
    leaves = keras.tree.flatten(tree)
    return [np.asarray(x) for x in leaves if not callable(x)]


def assert_same(ours, theirs):
    for a, b in zip(as_arrays(ours), as_arrays(theirs), strict=True):
        np.testing.assert_array_equal(a, b)


def test_pickled_callbacks_keep_their_samples_and_drop_the_model(fitted):
    for name, callback in fitted[0].items():
        revived = pickle.loads(pickle.dumps(callback))
        assert type(revived) is type(callback)
        known = facts(name, callback)
        assert known, name
        assert_same(facts(name, revived), known)
        assert revived.model is None


def test_pickled_posteriors_draw_the_same_in_another_process(fitted, tmp_path):
    (tmp_path / "posteriors").write_bytes(pickle.dumps(fitted[1]))
    code = (
        "import pickle, sys\n"
        "found = pickle.load(open(sys.argv[1], 'rb'))\n"
        "found.pop('MCDropout')\n"
        "draws = {name: p.sample(3) for name, p in found.items()}\n"
        "pickle.dump(draws, open(sys.argv[2], 'wb'))\n"
    )
    (tmp_path / "draw.py").write_text(code)
    paths = [tmp_path / "posteriors", tmp_path / "draws"]
    process = Command(tmp_path / "draw.py", *paths)
    printed, _ = process.communicate()
    assert process.returncode == 0, printed
    draws = pickle.loads(paths[1].read_bytes())
    for name, theirs in draws.items():
        assert_same(theirs, fitted[1][name].sample(3))


def test_pickled_dropout_posterior_draws_the_same_masks(fitted):
    network = bdl.Sequential([keras.Input((3,)), keras.layers.Dropout(0.5)])
    network.compile(loss="mse")
    masks = fitted[1]["MCDropout"]
    assert_same(
        *(
            bdl.predict(network, X, m, samples=2, keep_samples=True, verbose=0)
            .samples
            for m in (masks, pickle.loads(pickle.dumps(masks)))
        )
    )  # fmt: skip


def test_pickled_callback_continues_to_collect(fitted):
    swag = pickle.loads(pickle.dumps(fitted[0]["SWAG"]))
    fit("sgd", swag)
    assert swag.num_collected == 8
