"""Every `Example:` of a docstring runs."""

import ast
import re
import textwrap
from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf

import keras_bdl as bdl

PACKAGE = Path(bdl.__file__).parent
BLOCK = re.compile(r"Example:\n(.*?)(?=\n[A-Z]\w+:\n|\Z)", re.DOTALL)
FENCED = re.compile(r"```python\n(.*?)```", re.DOTALL)


def examples():
    """Yields the name of each documented object and the code of its example."""
    for path in sorted(PACKAGE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(
                node, ast.Module | ast.ClassDef | ast.FunctionDef
            ):
                continue
            text = ast.get_docstring(node) or ""
            if "Example:" in text:
                name = getattr(node, "name", "module")
                found = BLOCK.search(text)
                blocks = FENCED.findall(found[1] if found else "")
                code = textwrap.dedent("\n".join(blocks))
                yield f"{path.relative_to(PACKAGE)}:{name}", code


EXAMPLES = dict(examples())
RNG = np.random.default_rng(0)
X = RNG.normal(size=(64, 4)).astype("float32")
Y = (X[:, 0] > 0).astype("int32")
LOSS = keras.losses.SparseCategoricalCrossentropy(from_logits=True)


def _model():
    dense = keras.layers.Dense
    model = bdl.Sequential([keras.Input((4,)), dense(4), dense(2)])
    # An example trains for one epoch, which a trace would outlast.
    model.compile("sgd", LOSS, run_eagerly=True)
    return model


def _net():
    net = bdl.Sequential([keras.Input((4,)), bdl.layers.MeanFieldDense(2)])
    net.compile("adam", LOSS, run_eagerly=True)
    net.fit(X, Y, verbose=0)
    return net


def _posterior():
    weights = _model().get_weights()
    members = [[w + RNG.normal(size=w.shape) for w in weights] for _ in "1234"]
    return bdl.posteriors.Ensemble(members)


def _prediction():
    return bdl.prediction.ClassificationPrediction.from_probabilities(
        RNG.dirichlet([1.0, 1.0], 64), y=Y
    )


def _batches():
    return tf.data.Dataset.from_tensor_slices((X, Y)).batch(16)


def _segmenter():
    convolution = keras.layers.Conv2D(2, 3, padding="same")
    segmenter = keras.Sequential([keras.Input((8, 8, 1)), convolution])
    segmenter.compile(loss=LOSS)
    return segmenter


def _labelled_images():
    images = RNG.normal(size=(16, 8, 8, 1)).astype("float32")
    pixels = (images[..., 0] > 0).astype("int32")
    return tf.data.Dataset.from_tensor_slices((images, pixels)).batch(8)


# What an example takes for granted, made only if the example names it.
NAMES = {
    "np": lambda: np,
    "keras": lambda: keras,
    "tf": lambda: tf,
    "bdl": lambda: bdl,
    "keras_bdl": lambda: bdl,
    "x": lambda: X,
    "y": lambda: Y,
    "x_test": lambda: X,
    "y_test": lambda: Y,
    "images": lambda: RNG.normal(size=(16, 8, 8, 1)).astype("float32"),
    "labels": lambda: Y[:16],
    "segmenter": _segmenter,
    "labelled_images": _labelled_images,
    "train": _batches,
    "val": _batches,
    "loss": lambda: LOSS,
    "model": _model,
    "net": _net,
    "posterior": _posterior,
    "another_posterior": _posterior,
    "prediction": _prediction,
}


@pytest.fixture(autouse=True)
def in_an_empty_directory(tmp_path, monkeypatch):
    import matplotlib

    matplotlib.use("Agg")
    monkeypatch.chdir(tmp_path)
    keras.utils.set_random_seed(0)
    yield
    matplotlib.pyplot.close("all")


def test_there_are_examples_and_each_is_a_block_of_python():
    assert len(EXAMPLES) > 80
    assert not [name for name, code in EXAMPLES.items() if not code]


# An example shows how to call something; its short runs may drift or warn.
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", EXAMPLES)
def test_the_example_runs(name, request, monkeypatch):
    code = EXAMPLES[name]
    if "distribute.strategy" in code:
        # One process has one strategy, see `mirrored`.
        mirrored = request.getfixturevalue("mirrored")
        monkeypatch.setattr(bdl.distribute, "strategy", lambda _: mirrored)
    used = {n.id for n in ast.walk(ast.parse(code)) if isinstance(n, ast.Name)}
    values = {n: make() for n, make in NAMES.items() if n in used}
    exec(compile(code, name, "exec"), values)
