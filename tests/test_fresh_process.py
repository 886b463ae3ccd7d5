"""Tests of `import keras_bdl`, all in one new process: a start takes 5 s."""

import json
import re
import subprocess
import sys
from pathlib import Path

import keras
import pytest

import keras_bdl as bdl

GUIDES = Path(__file__).parent.parent / "examples" / "guides"
PROGRAM = """
import json, sys
import keras

at_start, found = set(sys.modules), {}
try:
    keras.models.load_model(sys.argv[1])
except TypeError as error:
    found["unregistered"] = str(error)

# No other backend is installed where the tests run, so Keras is made to say
# that it uses one.
before, backend = set(sys.modules), keras.backend.backend
keras.backend.backend = lambda: "jax"
try:
    import keras_bdl
except ImportError as error:
    found["with jax"] = str(error)
keras.backend.backend = backend
for name in set(sys.modules) - before:
    if name.partition(".")[0] == "keras_bdl":
        del sys.modules[name]

import keras_bdl
found["imported"] = sorted(set(sys.modules) - before)
found["since start"] = sorted(set(sys.modules) - at_start)
found["built"] = keras.models.load_model(sys.argv[1]).built
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    """Returns what the process finds, by name."""
    path = str(tmp_path_factory.mktemp("saved") / "net.keras")
    bdl.Sequential([keras.Input((2,)), bdl.layers.MeanFieldDense(1)]).save(path)
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", PROGRAM, path],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_import_loads_no_heavy_library_that_keras_has_not(found):
    heavy = {
        "tensorflow_probability",
        "tensorflow_datasets",
        "matplotlib",
        "matplotlib.pyplot",
        "sklearn",
        "sklearn.metrics",
        "scipy.optimize",
    }
    assert "keras_bdl._models" in found["since start"]
    assert not heavy & set(found["since start"])


def test_import_loads_no_private_module_of_keras(found):
    assert not [name for name in found["imported"] if "keras.src" in name]


def test_another_backend_is_refused_with_one_sentence(found):
    assert found["with jax"] == (
        "`keras_bdl` runs on the TensorFlow backend of Keras, and "
        "this process uses another: set KERAS_BACKEND=tensorflow before Keras "
        "is imported. Received: backend=jax"
    )


def test_guide_has_the_words_of_keras_for_a_file_without_the_import(found):
    guide = GUIDES / "saving_and_export.md"
    passage = " ".join(guide.read_text().split())
    said = found["unregistered"].strip().splitlines()[-1]
    words = re.match(r".*serializable\(\)`", said).group()
    assert f"TypeError: {words}" in passage
    assert found["built"]
