import os
import re
import subprocess
import sys
from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf

import keras_bdl as bdl
from tests.helpers import cross_entropy

README = Path(__file__).parent.parent / "README.md"
SNIPPETS = re.findall(r"```python\n(.*?)```", README.read_text(), re.S)


def test_short_names():
    assert sorted(bdl.__all__) == [
        "ATMC",
        "IVON",
        "KFAC",
        "Model",
        "NoisyKFAC",
        "OGN",
        "SGHMC",
        "SGLD",
        "SGNHT",
        "SWA",
        "SWAG",
        "Sequential",
        "VOGN",
        "applications",
        "callbacks",
        "continual",
        "conversion",
        "convert",
        "curvature",
        "data",
        "datasets",
        "diagnostics",
        "distribute",
        "distributions",
        "evaluate",
        "evaluation",
        "fit_laplace",
        "layers",
        "likelihoods",
        "metrics",
        "models",
        "objectives",
        "optimizers",
        "plots",
        "posteriors",
        "predict",
        "prediction",
        "priors",
        "protocols",
        "schedules",
    ]
    for name in bdl.__all__:
        assert hasattr(bdl, name)


def python(code):
    return subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code],
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"},
        capture_output=True,
        text=True,
    )


def test_import_loads_no_heavy_library_that_keras_has_not():
    heavy = (
        "tensorflow_probability",
        "tensorflow_datasets",
        "matplotlib",
        "matplotlib.pyplot",
        "sklearn",
        "sklearn.metrics",
        "scipy.optimize",
    )
    result = python(
        "import sys, keras; before = set(sys.modules); import keras_bdl;"
        f"print(set({heavy}) & (set(sys.modules) - before))"
    )
    assert result.stdout.strip() == "set()", result.stderr


def test_another_backend_is_refused_with_one_sentence():
    # No other backend is installed where the tests run, so Keras is made to
    # say that it uses one.
    result = python(
        "import keras; keras.backend.backend = lambda: 'jax'; import keras_bdl"
    )
    assert result.stderr.strip().splitlines()[-1] == (
        "ImportError: `keras_bdl` runs on the TensorFlow backend of Keras, and "
        "this process uses another: set KERAS_BACKEND=tensorflow before Keras "
        "is imported. Received: backend=jax"
    )


@pytest.fixture
def names(tmp_path, monkeypatch):
    """What the snippets of the README take for granted, in small."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    x = rng.normal(size=(32, 4)).astype("float32")
    y = (x[:, 0] > 0).astype("int32")
    model = bdl.Sequential(
        [
            keras.Input((4,)),
            keras.layers.Dense(4),
            keras.layers.BatchNormalization(),
            keras.layers.Dense(2),
        ]
    )
    loss = cross_entropy()
    model.compile("sgd", loss)
    net = bdl.Sequential([keras.Input((4,)), bdl.layers.MeanFieldDense(2)])
    net.compile("adam", loss)
    p = bdl.prediction.ClassificationPrediction.from_probabilities(
        rng.dirichlet([1.0, 1.0], 32), y=y
    )
    chain = bdl.posteriors.Ensemble(
        [
            [abs(w + rng.normal(size=w.shape)) for w in model.get_weights()]
            for _ in range(4)
        ]
    )
    return {
        "keras": keras,
        "bdl": bdl,
        "model": model,
        "net": net,
        "loss": loss,
        "train": tf.data.Dataset.from_tensor_slices((x, y)).batch(32),
        "val": (x, y),
        "x": x,
        "y": y,
        "x_images": rng.normal(size=(32, 8, 8, 1)).astype("float32"),
        "x_test": x,
        "y_test": y,
        "samples_1": chain,
        "samples_2": chain,
        "p": p,
        "p_svhn": p,
    }


def test_readme_has_the_words_of_keras_for_a_file_without_the_import(tmp_path):
    path = str(tmp_path / "net.keras")
    bdl.Sequential([keras.Input((2,)), bdl.layers.MeanFieldDense(1)]).save(path)
    load = f"keras.models.load_model({path!r})"
    said = python(f"import keras; {load}").stderr.strip().splitlines()[-1]
    passage = " ".join(README.read_text().split())
    words = re.match(r"TypeError: .*serializable\(\)`", said).group()
    assert words in passage
    assert keras.models.load_model(path).built  # here it is imported


# A net of one step may be best with any prior.
@pytest.mark.filterwarnings("ignore:The best prior precision is at the end")
@pytest.mark.filterwarnings("ignore:`export` writes one network")
@pytest.mark.parametrize(
    "snippet",
    SNIPPETS,
    ids=lambda s: s.splitlines()[-1][:30],
)
def test_readme_snippet_runs(snippet, names):
    snippet = snippet.replace("fit(train,", "fit(train, verbose=0,")
    snippet = snippet.replace(
        "fit(*digits.train,", "fit(*digits.train, verbose=0,"
    )
    snippet = snippet.replace("epochs=1000", "epochs=260")  # two samples
    exec(snippet, names)  # noqa: S102
