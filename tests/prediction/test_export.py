"""Exported files give the results of a `PosteriorPredictive`."""

import subprocess
import sys

import keras
import numpy as np
import pytest
import tensorflow as tf

import keras_bdl as bdl
from keras_bdl import PosteriorPredictive
from keras_bdl.posteriors import Ensemble
from keras_bdl.posteriors import Gaussian
from keras_bdl.posteriors import MCDropout
from keras_bdl.prediction import PredictOptions
from tests.helpers import KERAS
from tests.helpers import LITERT
from tests.helpers import cross_entropy

RNG = np.random.default_rng(0)
IMAGES = RNG.normal(size=(30, 8, 8, 1)).astype("float32")
LABELS = RNG.integers(0, 3, 30)
VECTORS = RNG.normal(size=(30, 2)).astype("float32")
OTHERS = RNG.normal(size=(30, 3)).astype("float32")
OUTPUTS = ("mean", "entropy", "mutual_information", "stddev")
NAMES = (*OUTPUTS, "predicted_classes")
# Keras checks `np.object` before a conversion to ONNX.
pytestmark = pytest.mark.filterwarnings("ignore:In the future .np.object.")
EXTRA = 'python -m pip install -e ".[export]"'
PACKAGES = {
    "litert": ["ai_edge_litert.interpreter"],
    "onnx": ["tf2onnx", "onnxruntime"],
}
DENSE = keras.layers.Dense


def gaussian(model, variance=0.01):
    mean = [np.array(v) for v in model.trainable_variables]
    return Gaussian(mean, [np.full(m.shape, variance) for m in mean])


def convolutional(*layers):
    """Returns a network with BatchNorm and a ReLU."""
    model = keras.Sequential(
        [
            keras.Input((8, 8, 1)),
            keras.layers.Conv2D(4, 3, activation="relu"),
            keras.layers.BatchNormalization(),
            *layers,
            keras.layers.Flatten(),
            DENSE(3),
        ]
    )
    model.compile("sgd", cross_entropy())
    return model


def all_weights(**kwargs):
    model = convolutional()
    posterior = gaussian(model)
    return PosteriorPredictive(
        model,
        posterior,
        samples=3,
        outputs=NAMES,
        batch_norm_data=IMAGES,
        **kwargs,
    )


def laplace(**kwargs):
    model = convolutional()
    posterior = bdl.fit_laplace(model, (IMAGES, LABELS), verbose=0)
    return PosteriorPredictive(model, posterior, **kwargs)


def ensemble():
    models = [convolutional() for _ in range(2)]
    posterior = Ensemble.from_models(models)
    return PosteriorPredictive(models[0], posterior, outputs=NAMES)


def regression():
    model = keras.Sequential([keras.Input((2,)), DENSE(8, "tanh"), DENSE(1)])
    loss = bdl.likelihoods.Gaussian(noise_stddev=0.1)
    model.compile("sgd", loss)
    posterior = bdl.fit_laplace(model, VECTORS, verbose=0)
    return PosteriorPredictive(
        model,
        posterior,
        options=PredictOptions(link="identity"),
        outputs=("mean", "stddev"),
    )


def two_inputs():
    a, b = keras.Input((2,), name="a"), keras.Input((3,), name="b")
    x = keras.layers.Concatenate()([a, b])
    model = keras.Model({"a": a, "b": b}, DENSE(3)(x))
    model.compile("sgd", cross_entropy())
    return PosteriorPredictive(
        model, gaussian(model), samples=2, outputs=OUTPUTS
    )


CASES = {
    "all weights": lambda: (all_weights(), IMAGES),
    "bfloat16": lambda: (all_weights(weights_dtype="bfloat16"), IMAGES),
    "float16": lambda: (all_weights(weights_dtype="float16"), IMAGES),
    "linearised": lambda: (laplace(samples=3, outputs=OUTPUTS), IMAGES),
    "probit": lambda: (
        laplace(
            options=PredictOptions(link="probit"), outputs=("mean", "entropy")
        ),
        IMAGES,
    ),
    "identity": lambda: (regression(), VECTORS),
    "ensemble": lambda: (ensemble(), IMAGES),
    "two inputs": lambda: (two_inputs(), {"a": VECTORS, "b": OTHERS}),
}


def litert(path, **arguments):
    """Returns a function that runs a file of LiteRT."""
    from ai_edge_litert.interpreter import Interpreter

    interpreter = Interpreter(path, **arguments)
    return interpreter.get_signature_runner("serving_default")


def onnx(path):
    """Returns a function that runs a file of ONNX."""
    import onnxruntime

    session = onnxruntime.InferenceSession(path)
    names = [output.name for output in session.get_outputs()]
    return lambda **inputs: dict(
        zip(names, session.run(None, inputs), strict=True)
    )


@pytest.mark.parametrize("format", ["litert", "onnx"])
@pytest.mark.parametrize("case", CASES)
def test_litert_and_onnx_answer_like_the_model(format, case, tmp_path):
    # Before the conversion, which takes seconds.
    for package in PACKAGES[format]:
        pytest.importorskip(package, reason=EXTRA)
    predictive, inputs = CASES[case]()
    path = str(tmp_path / ("p.tflite" if format == "litert" else "p.onnx"))
    predictive.export(path, format=format, verbose=False)
    run = {"litert": litert, "onnx": onnx}[format](path)
    for batch in (1, 5):
        x = keras.tree.map_structure(lambda t, n=batch: t[:n], inputs)
        found = run(**(x if isinstance(x, dict) else {"inputs": x}))
        expected = predictive(x)
        assert set(found) == set(expected)
        for name, value in expected.items():
            np.testing.assert_allclose(found[name], value, 1e-5, 1e-5)


@pytest.mark.parametrize("storage", ["bucket"], indirect=True)
def test_exports_to_a_bucket_answer_like_the_model(storage):
    for package in PACKAGES["litert"]:
        pytest.importorskip(package, reason=EXTRA)
    predictive, x = regression(), VECTORS[:3]
    expected = predictive(x)["mean"]
    predictive.export(str(storage / "served"), verbose=False)
    served = tf.saved_model.load(str(storage / "served"))
    answer = served.serve(x)["mean"]
    np.testing.assert_allclose(answer, expected, 1e-5, 1e-5)
    path = storage / "p.tflite"
    predictive.export(path, format="litert", verbose=False)
    content = tf.io.read_file(str(path)).numpy()
    found = litert(None, model_content=content)(inputs=x)["mean"]
    np.testing.assert_allclose(found, expected, 1e-5, 1e-5)
    with pytest.raises(ValueError, match="must be a string of the form"):
        predictive.export("gs:/bucket/served")


def test_onnx_without_its_converter_names_the_pip_command(
    tmp_path, monkeypatch
):
    monkeypatch.setitem(sys.modules, "tf2onnx", None)
    predictive = PosteriorPredictive(convolutional(), samples=1)
    with pytest.raises(ImportError, match=r"pip install .keras-bdl\[export\]"):
        predictive.export(str(tmp_path / "p.onnx"), format="onnx")


def test_formats_without_random_numbers_are_refused(tmp_path):
    model = convolutional(keras.layers.Dropout(0.5))
    dropout = PosteriorPredictive(model, MCDropout(), samples=2)
    for path in ("p.tflite", "p.onnx"):
        format = "litert" if path == "p.tflite" else "onnx"
        with pytest.raises(ValueError, match="masks of dropout. Use `format="):
            dropout.export(str(tmp_path / path), format=format)
    drawn = laplace(options=PredictOptions(link="monte_carlo"), samples=2)
    with pytest.raises(ValueError, match="Use `link=None`"):
        drawn.export(str(tmp_path / "p.tflite"), format="litert")


def test_linearised_layers_that_onnx_cannot_compute_are_refused(tmp_path):
    pytest.importorskip("tf2onnx", reason=EXTRA)
    path = tmp_path / "p.onnx"
    predictive = all_weights(options=PredictOptions(linearized=True))
    with pytest.raises(ValueError, match="ReluGrad.*`linearized=False`"):
        predictive.export(str(path), format="onnx", verbose=False)
    assert not path.exists()


@pytest.mark.skipif(KERAS < LITERT, reason="Keras before 3.13 has no LiteRT")
def test_litert_warns_of_the_flex_delegate(tmp_path):
    predictive = all_weights(options=PredictOptions(linearized=True))
    with pytest.warns(UserWarning, match="ReluGrad.*Flex delegate"):
        predictive.export(
            str(tmp_path / "p.tflite"), format="litert", verbose=False
        )


@pytest.mark.parametrize("dtype, size", [("float32", 4), ("bfloat16", 2)])
def test_saved_model_holds_each_sample_once(dtype, size, tmp_path):
    model = keras.Sequential([keras.Input((50,)), DENSE(400), DENSE(3)])
    model.compile("sgd", cross_entropy())
    predictive = PosteriorPredictive(
        model, gaussian(model), samples=5, weights_dtype=dtype
    )
    predictive.export(tmp_path, verbose=False)
    stored = sum(p.stat().st_size for p in tmp_path.glob("variables/*"))
    expected = 5 * size * model.count_params()
    assert expected <= stored < 1.05 * expected


def test_signature_has_the_form_that_tensorflow_serving_takes(tmp_path):
    for number, (predictive, names) in enumerate(
        [(all_weights(), {"inputs"}), (two_inputs(), {"a", "b"})]
    ):
        path = str(tmp_path / str(number))
        predictive.export(path, verbose=False)
        signature = tf.saved_model.load(path).signatures["serving_default"]
        assert signature.structured_input_signature[0] == ()
        inputs = signature.structured_input_signature[1]
        outputs = signature.structured_outputs
        assert set(inputs) == names
        assert set(outputs) == set(predictive._output_names)
        # A "row" of the REST interface is one entry of the first axis.
        assert all(
            spec.shape[0] is None for spec in (inputs | outputs).values()
        )


class OfDictionary(keras.Model):
    """A subclassed model whose inputs have names."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.dense = DENSE(3)

    def call(self, inputs):
        return self.dense(inputs["a"])


@pytest.mark.parametrize("subclassed", [False, True])
def test_names_of_inputs_survive_a_file(subclassed, tmp_path):
    model = keras.Sequential([keras.Input((2,)), DENSE(3)])
    if subclassed:
        model = OfDictionary()
    x = {"a": VECTORS} if subclassed else VECTORS
    model(x)
    model.compile("sgd", cross_entropy())
    predictive = PosteriorPredictive(model, gaussian(model), samples=2)
    predictive(x)
    predictive.save(tmp_path / "p.keras")
    loaded = keras.models.load_model(
        tmp_path / "p.keras", custom_objects={"OfDictionary": OfDictionary}
    )
    loaded.export(tmp_path, verbose=False)
    exported = tf.saved_model.load(tmp_path)
    signature = exported.signatures["serving_default"]
    names = set(signature.structured_input_signature[1])
    assert names == ({"a"} if subclassed else {"inputs"})


def test_saved_model_refuses_images_of_another_shape(tmp_path):
    model = keras.Sequential(
        [
            keras.Input((8, 8, 1)),
            keras.layers.GlobalAveragePooling2D(),
            DENSE(3),
        ]
    )
    model.compile("sgd", cross_entropy())
    predictive = PosteriorPredictive(model, gaussian(model), samples=2)
    predictive.export(tmp_path, verbose=False)
    exported = tf.saved_model.load(tmp_path)
    answer = exported.signatures["serving_default"]
    with pytest.raises(
        tf.errors.InvalidArgumentError, match="expected shape .*8,8,1"
    ):
        answer(inputs=tf.constant(IMAGES[:2, 1:]))


LOOKUPS = {
    "string": (keras.layers.StringLookup, {}, ["a", "b", "c"]),
    "integer": (keras.layers.IntegerLookup, {}, [10, 20, 30]),
    "text": (
        keras.layers.TextVectorization,
        {"output_sequence_length": 2},
        ["the cat", "a dog"],
    ),
    "tf_idf": (
        keras.layers.TextVectorization,
        {"output_mode": "tf_idf"},
        ["the cat", "the dog"],
    ),
}

FRESH = """
import sys
import numpy as np
import tensorflow as tf

paths = sys.argv[1:]
inputs = [tf.constant(np.load(path + "_x.npy")) for path in paths]
for path, x in zip(paths, inputs):
    exported = tf.saved_model.load(path)
    np.save(path + "_exported.npy", exported.serve(x)["mean"])
assert "keras_bdl" not in sys.modules
import keras
import keras_bdl

for path, x in zip(paths, inputs):
    loaded = keras.models.load_model(path + ".keras")
    np.save(path + "_loaded.npy", loaded(x)["mean"])
"""


def test_vocabularies_reach_a_fresh_process(tmp_path):
    expected = {}
    # Keras before 3.14 cannot load it.
    left_out = "tf_idf" if KERAS < (3, 14) else None
    for kind, (cls, kwargs, words) in LOOKUPS.items():
        if kind == left_out:
            continue
        lookup = cls(**kwargs)
        lookup.adapt(np.array(words))
        x = np.array([[word] for word in words])
        dtype = "int64" if kind == "integer" else "string"
        layers = [keras.Input((1,), dtype=dtype), lookup]
        if kind != "tf_idf":
            layers += [keras.layers.Embedding(9, 4), keras.layers.Flatten()]
        model = keras.Sequential([*layers, DENSE(3)])
        model.compile("sgd", cross_entropy())
        predictive = PosteriorPredictive(model, gaussian(model), samples=2)
        mean = predictive(tf.constant(x))["mean"]
        assert np.ptp(mean, axis=0).max() > 1e-3  # the words differ
        path = str(tmp_path / kind)
        expected[path] = mean
        np.save(path + "_x.npy", x)
        assert not predictive.supports_jit  # like the lookup inside
        predictive.save(path + ".keras")
        predictive.export(path, verbose=False)
    subprocess.run([sys.executable, "-c", FRESH, *expected], check=True)
    for path, mean in expected.items():
        for name in ("loaded", "exported"):
            found = np.load(f"{path}_{name}.npy")
            np.testing.assert_allclose(found, mean, 1e-6)
    if left_out:
        pytest.skip(f"All kinds passed but {left_out}, which was left out")
