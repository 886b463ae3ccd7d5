"""A `PosteriorPredictive` is a loop over posterior samples in one model."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import keras_bdl as bdl
from keras_bdl import PosteriorPredictive
from keras_bdl.posteriors import Gaussian
from keras_bdl.posteriors import MCDropout
from keras_bdl.prediction import PredictOptions
from tests.helpers import cross_entropy
from tests.helpers import dtype_policy
from tests.helpers import predict_arguments
from tests.posteriors.test_contracts import KINDS
from tests.posteriors.test_contracts import built

RNG = np.random.default_rng(0)
X = RNG.normal(size=(5, 2)).astype("float32")


def loop(model, posterior, x=X, samples=4, seed=0):
    """Returns the output of each sample, from the model itself."""
    outputs = []
    for draw in posterior.seeds(seed, samples):
        with posterior.sampled(model, draw):
            output = model(x, training=False)
            outputs.append(keras.tree.map_structure(np.array, output))
    return outputs


def softmax(logits):
    return np.array(keras.ops.softmax(np.float64(logits)))


def entropy(p):
    return -np.sum(p * np.log(p), -1)


def gaussian(model, variance=0.1, only=None):
    mean = [np.array(v) for v in model.trainable_variables]
    variances = [
        np.full(m.shape, variance) if only is None or i in only else None
        for i, m in enumerate(mean)
    ]
    return Gaussian(mean, variances)


@pytest.mark.filterwarnings("ignore:.*BatchNorm statistics")
@pytest.mark.parametrize("kind", KINDS)
def test_every_posterior_gives_the_average_of_a_loop(kind):
    model, posterior = built(kind)
    predictive = PosteriorPredictive(
        model,
        posterior,
        samples=4,
        outputs=("mean", "variance_between", "samples"),
        options=PredictOptions(task="regression", linearized=False),
    )
    outputs = np.stack(loop(model, posterior, samples=4))
    for _ in range(2):
        p = predictive(X)
        np.testing.assert_allclose(p["mean"], outputs.mean(0), 1e-5, 1e-5)
        variance = outputs.var(0)
        np.testing.assert_allclose(p["variance_between"], variance, 1e-4, 1e-5)
        if not posterior.is_point:
            samples = np.sort(np.swapaxes(p["samples"], 0, 1), 0)
            expected = np.sort(outputs, 0)
            np.testing.assert_allclose(samples, expected, 1e-5, 1e-5)


class TwoInputs(bdl.Model):
    """A subclassed model with two inputs, BatchNorm and two outputs."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.first = keras.layers.Dense(3, "relu")
        self.normalization = keras.layers.BatchNormalization()
        self.classes = keras.layers.Dense(3)
        self.mean = keras.layers.Dense(1)

    def call(self, inputs, training=None):
        x = self.first(inputs["a"]) + self.first(inputs["b"])
        x = self.normalization(x, training=training)
        return {"kind": self.classes(x), "size": self.mean(x)}


@pytest.mark.parametrize("policy", ["float32", "mixed_bfloat16"])
def test_several_inputs_and_outputs_of_a_subclassed_model(policy):
    with dtype_policy(policy):
        model = TwoInputs()
        x = {"a": X, "b": X[::-1]}
        model(x)
    model.compile(loss={"kind": cross_entropy(), "size": "mse"})
    posterior = gaussian(model)
    predictive = PosteriorPredictive(
        model, posterior, samples=3, batch_norm_data=x, outputs=("mean",)
    )
    expected = bdl.predict(
        model, x, posterior, samples=3, batch_norm_data=x, verbose=0
    )
    p = predictive(x)
    tolerance = 1e-5 if policy == "float32" else 1e-2
    for name in ("kind", "size"):
        np.testing.assert_allclose(
            p[f"{name}_mean"], expected[name].mean, tolerance, tolerance
        )


@pytest.mark.parametrize("policy", ["mixed_bfloat16", "mixed_float16"])
def test_mixed_precision_gives_the_average_of_a_loop(policy):
    with dtype_policy(policy):
        model = keras.Sequential(
            [
                keras.Input((2,)),
                keras.layers.Dense(8, "relu"),
                keras.layers.Dense(8, "tanh"),
                keras.layers.Dense(3, dtype="float32"),
            ]
        )
        model.compile("sgd", cross_entropy())
        posterior = gaussian(model)
        predictive = PosteriorPredictive(model, posterior, samples=4)
        p = predictive(X)["mean"]
        outputs = []
        for seed in posterior.seeds(0, 4):
            with posterior.sampled(model, seed):
                # In a graph, as in the program: `bfloat16` rounds otherwise.
                outputs.append(model.predict(X, verbose=0))
    np.testing.assert_allclose(p, softmax(outputs).mean(0), 1e-5, 1e-5)


def last_layer():
    model = keras.Sequential(
        [
            keras.Input((2,)),
            keras.layers.Dense(4, "tanh"),
            keras.layers.Dropout(0.5),
            keras.layers.Dense(3),
        ]
    )
    model.compile("sgd", cross_entropy())
    return model


def test_saved_and_exported_models_answer_the_same(tmp_path):
    model = last_layer()
    mixture = bdl.posteriors.Mixture([gaussian(model, only=[3]), MCDropout()])
    predictive = PosteriorPredictive(
        model, mixture, samples=6, outputs=("mean", "mutual_information")
    )
    p_s = softmax(loop(model, mixture, samples=6))
    p = predictive(X)
    np.testing.assert_allclose(p["mean"], p_s.mean(0), 1e-5)
    information = entropy(p_s.mean(0)) - entropy(p_s).mean(0)
    np.testing.assert_allclose(p["mutual_information"], information, atol=1e-5)

    model.set_weights([0 * w for w in model.get_weights()])  # another network
    predictive.save(tmp_path / "p.keras")
    loaded = keras.models.load_model(tmp_path / "p.keras")
    predictive.export(tmp_path / "exported", verbose=False)
    exported = tf.saved_model.load(tmp_path / "exported")
    seven = exported.serve_with_seed(X, tf.constant(7))
    for again in (predictive(X), loaded(X), exported.serve(X)):
        for name, value in p.items():
            np.testing.assert_allclose(again[name], value, 1e-6, 1e-7)
    np.testing.assert_array_equal(
        seven["mean"], exported.serve_with_seed(X, tf.constant(7))["mean"]
    )
    np.testing.assert_allclose(seven["mean"], loaded(X, seed=7)["mean"], 1e-6)
    assert np.abs(seven["mean"] - p["mean"]).max() > 1e-3


def test_evaluates_like_any_model_and_leaves_the_network_alone(tmp_path):
    model = last_layer()
    posterior = gaussian(model)
    predictive = PosteriorPredictive(
        model, posterior, samples=3, outputs="mean", weights_dtype="float16"
    )
    p_s = softmax(loop(model, posterior, samples=3))
    y = np.array([0, 1, 2, 0, 1])
    inputs = keras.Input((2,))
    doubled = keras.layers.Rescaling(2.0)(inputs)
    twice = keras.Model(inputs, predictive(doubled))
    for outer, x in ((predictive, X), (twice, X / 2)):
        outer.compile(loss="sparse_categorical_crossentropy")
        loss = outer.evaluate(x, y, verbose=0)
        expected = -np.mean(np.log(p_s.mean(0)[np.arange(5), y]))
        assert loss == pytest.approx(expected, rel=1e-2)
    before = [np.array(v) for v in model.variables]
    predictive.set_weights([0 * w for w in predictive.get_weights()])
    predictive.save_weights(tmp_path / "p.weights.h5")
    predictive.load_weights(tmp_path / "p.weights.h5")
    for variable, value in zip(model.variables, before, strict=True):
        np.testing.assert_array_equal(variable, value)
    assert not predictive.trainable_variables
    with pytest.raises(ValueError, match="cannot be trained"):
        predictive.fit(X, y)


def test_two_replicas_answer_like_one_device(mirrored):
    with mirrored.scope():
        model = last_layer()
        posterior = gaussian(model)
        predictive = PosteriorPredictive(model, posterior, samples=3)
    p_s = softmax(loop(model, posterior, samples=3))
    p = predictive.predict(X, batch_size=4, verbose=0)
    np.testing.assert_allclose(p["mean"], p_s.mean(0), 1e-5)


class Counted(keras.layers.Layer):
    """Counts how often it runs."""

    runs = 0

    def call(self, inputs):
        def count(x):
            self.runs += 1
            return x

        outputs = tf.numpy_function(count, [inputs], inputs.dtype)
        return tf.ensure_shape(outputs, inputs.shape)


@pytest.mark.parametrize("only, runs", [([0], 6), ([3], 1)])
def test_what_comes_before_the_first_uncertain_weight_runs_once(only, runs):
    counted = Counted()
    dense = keras.layers.Dense
    model = keras.Sequential(
        [keras.Input((2,)), dense(4), counted, dense(3, "softmax")]
    )
    model.compile("sgd", "sparse_categorical_crossentropy")
    posterior = gaussian(model, only=only)
    predictive = PosteriorPredictive(model, posterior, samples=6)
    for call in (
        tf.function(predictive),
        lambda x: bdl.predict(model, x, posterior, samples=6, verbose=0),
    ):
        call(X)
        counted.runs = 0
        call(X)
        assert counted.runs == runs


@pytest.mark.parametrize(
    "kwargs, match",
    [
        ({"outputs": ("mean", "stdev")}, "^`outputs` of a class.*'stdev'"),
        ({"outputs": ()}, "`outputs` must be one name, or at least one"),
        ({"weights_dtype": "int8"}, "`weights_dtype` must be one of"),
        (
            {"posterior": MCDropout(), "linearized": True},
            "posterior with a mean",
        ),
        ({"samples": 0}, "`samples` must be a positive integer"),
        ({"samples": 10**9}, "`samples` must be .* at most 1000000"),
    ],
)
def test_wrong_arguments_are_refused(kwargs, match):
    model = last_layer()
    kwargs = {"posterior": gaussian(model), "samples": 2} | kwargs
    with pytest.raises(ValueError, match=match):
        PosteriorPredictive(model, **predict_arguments(**kwargs))


def test_samples_that_do_not_fit_into_memory_are_refused(monkeypatch):
    model = last_layer()
    monkeypatch.setattr("keras_bdl._memory.free_bytes", lambda: 100)
    with pytest.raises(ValueError, match="5 samples.*100 bytes free"):
        PosteriorPredictive(model, gaussian(model), samples=5)


def test_normalization_and_loss_survive_a_file_and_a_new_compilation(tmp_path):
    normalization = keras.layers.Normalization()
    normalization.adapt(10 + 3 * X)
    dense = keras.layers.Dense(3)
    model = keras.Sequential([keras.Input((2,)), normalization, dense])
    model.compile("sgd", cross_entropy())
    predictive = PosteriorPredictive(model, gaussian(model), samples=3)
    expected = predictive(X)["mean"]
    model.compile("sgd", "mse")
    predictive.save(tmp_path / "p.keras")
    loaded = keras.models.load_model(tmp_path / "p.keras")
    for again in (predictive, loaded):
        np.testing.assert_allclose(again(X)["mean"], expected, 1e-5)
        assert again.predict(X, verbose=0)["mean"].shape == (5, 3)


def test_layer_with_a_constant_tensor_after_the_first_uncertain_weight():
    mask = tf.constant(np.tril(np.ones((20, 20), "float32")))  # large enough
    inputs = keras.Input((2,))
    x = keras.layers.Dense(20)(inputs)
    x = keras.layers.Lambda(lambda t: t @ mask)(x)
    model = keras.Model(inputs, keras.layers.LSTM(4)(x[:, :, None]))
    posterior = gaussian(model)
    predictive = PosteriorPredictive(
        model, posterior, samples=2, options=PredictOptions(task="regression")
    )
    expected = np.mean(loop(model, posterior, samples=2), 0)
    for call in (predictive, tf.function(predictive)):
        np.testing.assert_allclose(call(X)["mean"], expected, 1e-4, 1e-5)


def noisy(x):
    return x + tf.random.normal(tf.shape(x))


def noisy_in_a_loop(x):
    return tf.while_loop(lambda _: True, noisy, [x], maximum_iterations=2)[0]


@pytest.mark.parametrize("noisy", [noisy, tf.function(noisy_in_a_loop)])
def test_random_numbers_without_a_seed_are_drawn_for_each_sample(noisy):
    model = keras.Sequential(
        [keras.Input((2,)), keras.layers.Lambda(noisy), keras.layers.Dense(1)]
    )
    p = bdl.predict(
        model,
        X,
        gaussian(model, only=[1]),
        samples=8,
        options=bdl.prediction.PredictOptions(task="regression"),
        keep_samples=True,
        verbose=0,
    )
    # A common noise would cancel in the differences of two examples.
    difference = p.samples[:, 0] - p.samples[:, 1]
    assert difference.std() > 0.1


def test_half_precision_keeps_small_deviations_of_a_linearised_network():
    model = keras.Sequential(
        [keras.Input((2,)), keras.layers.Dense(1, use_bias=False)]
    )
    # float16 would round a weight of 100 by more than its deviation.
    narrow = Gaussian([np.full((2, 1), 100.0)], [np.full((2, 1), 1e-6)])
    full, half = (
        PosteriorPredictive(
            model,
            narrow,
            samples=20,
            outputs="stddev",
            options=PredictOptions(task="regression", linearized=True),
            weights_dtype=dtype,
        )(X)
        for dtype in (None, "float16")
    )
    np.testing.assert_allclose(half, full, rtol=2e-2)


def linked(outputs, weights_dtype=None, variance=1e-2):
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(3)])
    mean = [np.array(v) for v in model.trainable_variables]
    return PosteriorPredictive(
        model,
        Gaussian(mean, [np.full(m.shape, variance) for m in mean]),
        options=PredictOptions(
            linearized=True,
            link="probit" if outputs == "mean" else "identity",
            task="classification" if outputs == "mean" else "regression",
            from_logits=True if outputs == "mean" else None,
        ),
        outputs=outputs,
        weights_dtype=weights_dtype,
    )


def test_probit_has_gradients_with_respect_to_the_inputs():
    predictive, x = linked("mean"), tf.constant(X)
    with tf.GradientTape() as tape:
        tape.watch(x)
        mean = predictive(x)[:, 0]
    assert np.all(np.isfinite(tape.gradient(mean, x)))


def test_half_precision_keeps_small_variances():
    stddev = linked("stddev", "float16", variance=1e-9)(X)
    expected = np.sqrt(1e-9 * (1 + np.sum(np.square(X), -1, keepdims=True)))
    np.testing.assert_allclose(stddev, np.tile(expected, 3), rtol=1e-4)


def test_a_call_prints_no_warning_of_autograph(caplog):
    logger = tf.get_logger()
    logger.addHandler(caplog.handler)
    try:
        linked("mean")(X)
    finally:
        logger.removeHandler(caplog.handler)
    assert "AutoGraph" not in caplog.text


def test_wrong_inputs_are_refused_and_change_no_later_call():
    predictive = linked("mean")
    expected = predictive(X)
    for wrong in (X[:, :1], X[0], np.ones((2, 2, 2), "float32")):
        with pytest.raises(ValueError, match="(?s)shape.*eceived"):
            predictive(wrong)
    with pytest.raises(ValueError, match="`seed` must be an integer"):
        predictive(X, seed=1.5)
    for batch in (3, 0):
        np.testing.assert_allclose(
            predictive(X[:batch]), expected[:batch], 1e-6
        )


def binary_network(case):
    inputs = keras.Input((3,))
    hidden = keras.layers.Dense(4, "tanh")(inputs)
    units = 5 if case == "labels" else 1
    outputs = keras.layers.Dense(
        units, None if case == "logit" else "sigmoid", name="own"
    )(hidden)
    if case == "vector":
        outputs = keras.layers.Reshape(())(outputs)
    if case == "two":
        outputs = {"a": outputs, "b": keras.layers.Dense(2)(hidden)}
    model = keras.Model(inputs, outputs)
    loss = keras.losses.BinaryCrossentropy(from_logits=case == "logit")
    model.compile(
        "sgd", {"a": loss, "b": "mean_squared_error"} if case == "two" else loss
    )
    return model


@pytest.mark.parametrize("case", ["logit", "one", "vector", "labels", "two"])
def test_one_name_gives_the_shape_of_a_binary_output(case, tmp_path):
    model = binary_network(case)
    rng = np.random.default_rng(0)
    x = rng.normal(size=(6, 3)).astype("float32")
    weights = model.trainable_variables
    posterior = Gaussian(
        [np.asarray(v) for v in weights], [np.ones(v.shape) for v in weights]
    )
    options = {"samples": 3, "task": "binary" if case == "vector" else None}
    if case == "vector":
        options["from_logits"] = False
    options = predict_arguments(**options)
    served = PosteriorPredictive(model, posterior, outputs="mean", **options)
    both = PosteriorPredictive(
        model, posterior, outputs=("mean", "stddev"), **options
    )
    own = model.predict(x, verbose=0)
    found, classes = served.predict(x, verbose=0), both(x)
    if case == "two":
        assert {k: v.shape for k, v in found.items()} == {
            k: v.shape for k, v in own.items()
        }
        np.testing.assert_allclose(found["a"], classes["a_mean"][..., 1:])
        np.testing.assert_allclose(found["b"], classes["b_mean"])
        served.compile("sgd", {"a": "binary_crossentropy", "b": "mse"})
        assert np.isfinite(
            served.evaluate(x, {"a": np.ones(6), "b": own["b"]}, verbose=0)
        ).all()
        return
    assert found.shape == own.shape
    one = np.asarray(classes["mean"])[..., 1]
    np.testing.assert_allclose(found, one.reshape(own.shape))
    y = rng.integers(0, 2, (6, 5) if case == "labels" else 6)
    served.compile("sgd", "binary_crossentropy", metrics=["binary_accuracy"])
    loss, accuracy = served.evaluate(x, y, verbose=0)
    p = one.reshape(y.shape)
    nll = -np.log(np.where(y == 1, p, 1 - p)).mean()
    np.testing.assert_allclose(loss, nll, rtol=1e-4)
    np.testing.assert_allclose(accuracy, np.mean((p > 0.5) == y), rtol=1e-6)
    if case != "logit":
        return
    served.save(tmp_path / "served.keras")
    loaded = keras.models.load_model(tmp_path / "served.keras")
    np.testing.assert_allclose(loaded(x), found, rtol=1e-5)
    served.export(str(tmp_path / "served"), verbose=False)
    program = tf.saved_model.load(str(tmp_path / "served"))
    np.testing.assert_allclose(program.serve(x), found, rtol=1e-5)
    for name, shape in (("stddev", (6, 1)), ("samples", (6, 3, 1))):
        each = PosteriorPredictive(model, posterior, outputs=name, **options)
        assert each(x).shape == shape
    assert classes["mean"].shape == (6, 2)
