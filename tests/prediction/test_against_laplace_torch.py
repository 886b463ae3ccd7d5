"""`fit_laplace` and the links agree with laplace-torch on the same weights."""

import importlib.util
import subprocess
import sys
from pathlib import Path

import keras
import numpy as np
import pytest

import keras_bdl as bdl

if importlib.util.find_spec("laplace") is None:
    pytest.skip(
        "needs laplace-torch, of the extra `bench`", allow_module_level=True
    )

RNG = np.random.default_rng(0)
X = RNG.normal(size=(60, 4)).astype("float32")
X_TEST = 2 * RNG.normal(size=(9, 4)).astype("float32")
NAMES = {"diagonal": "diag", "kronecker": "kron"}


def network(outputs, loss, use_bias):
    keras.utils.set_random_seed(1)
    model = keras.Sequential(
        [
            keras.Input((4,)),
            keras.layers.Dense(5, "tanh", use_bias=use_bias),
            keras.layers.Dense(outputs, use_bias=use_bias),
        ]
    )
    model.compile("sgd", loss)
    return model


def twin(model, y, folder, subset, structure, **arrays):
    """Returns what laplace-torch predicts for the same network and data."""
    for i, layer in enumerate(model.layers):
        names = (f"kernel_{i}", f"bias_{i}")
        arrays |= zip(names, layer.get_weights(), strict=False)
    source, target = folder / "in.npz", folder / "out.npz"
    np.savez(source, x=X, y=y, x_test=X_TEST, **arrays)
    program = Path(__file__).parent / "laplace_torch_twin.py"
    command = [sys.executable, program, source, target, subset]
    subprocess.run([*command, NAMES[structure]], check=True)
    return np.load(target)


@pytest.mark.parametrize("subset", ["last_layer", "all"])
@pytest.mark.parametrize("structure", ["diagonal", "kronecker"])
def test_probit_of_a_classifier(tmp_path, subset, structure):
    # laplace-torch treats a bias apart from its kernel, so Kronecker factors
    # agree for layers without a bias.
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model = network(3, loss, use_bias=structure == "diagonal")
    y = RNG.integers(0, 3, len(X))
    posterior = bdl.fit_laplace(
        model,
        (X, y),
        subset=subset,
        structure=structure,
        prior_precision=2.0,
        refinements=0,
        verbose=0,
    )
    p = bdl.predict(
        model,
        X_TEST,
        posterior,
        options=bdl.prediction.PredictOptions(link="probit"),
        verbose=0,
    )
    expected = twin(model, y, tmp_path, subset, structure)
    np.testing.assert_allclose(p.mean, expected["mean"], atol=1e-3)


def test_closed_form_of_a_regression(tmp_path):
    loss = bdl.likelihoods.Gaussian(noise_stddev=0.3)
    model = network(1, loss, use_bias=True)
    y = RNG.normal(size=(len(X), 1)).astype("float32")
    posterior = bdl.fit_laplace(
        model,
        (X, y),
        structure="diagonal",
        prior_precision=2.0,
        verbose=0,
    )
    p = bdl.predict(
        model,
        X_TEST,
        posterior,
        options=bdl.prediction.PredictOptions(link="identity"),
        verbose=0,
    )
    expected = twin(model, y, tmp_path, "last_layer", "diagonal", noise=0.3)
    np.testing.assert_allclose(p.mean, expected["mean"], atol=1e-3)
    np.testing.assert_allclose(
        p.variance_between, expected["variance"], rtol=1e-3
    )
