import contextlib
import gc
import sys
import weakref

import keras
import numpy as np
import pytest
import tensorflow as tf

import keras_bdl
from keras_bdl import predict
from keras_bdl._data._batches import Batches
from keras_bdl.posteriors import Ensemble
from keras_bdl.posteriors import Gaussian
from keras_bdl.posteriors import MCDropout
from keras_bdl.prediction import PredictOptions
from keras_bdl.prediction import _sample_loop as sample_loop
from tests.helpers import cross_entropy
from tests.helpers import dtype_policy
from tests.helpers import own_garbage
from tests.helpers import predict_arguments

CROSSENTROPY = cross_entropy()
RNG = np.random.default_rng(0)
X = RNG.normal(size=(21, 4)).astype("float32")
Y = RNG.integers(0, 3, 21)


def network(*layers, units=3, loss=CROSSENTROPY, **compile_args):
    layers = [keras.layers.Dense(8, activation="tanh"), *layers]
    model = keras.Sequential(
        [keras.Input((4,)), *layers, keras.layers.Dense(units, name="out")]
    )
    model.compile("sgd", loss, **compile_args)
    return model


def gaussian(model, variance=0.3):
    mean = [np.array(v) for v in model.trainable_variables]
    return Gaussian(mean, [np.full(m.shape, variance) for m in mean])


def outputs_of_draws(model, posterior, samples, seed=0, x=X):
    """Sets the weights by hand and runs the model without a function."""
    outputs = []
    trained = model.get_weights()
    for draw in posterior.seeds(seed, samples):
        model.set_weights(posterior.sample(draw))
        outputs.append(keras.tree.map_structure(np.array, model(x)))
    model.set_weights(trained)
    return outputs


def softmax(logits):
    e = np.exp(np.float64(logits) - np.max(logits, -1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def entropy(p):
    return -np.sum(p * np.log(p), -1)


@contextlib.contextmanager
def unchanged(model):
    before = [np.array(v) for v in model.variables]
    yield
    for variable, value in zip(model.variables, before, strict=True):
        np.testing.assert_array_equal(variable, value)


def test_classification_equals_a_loop_with_weights_set_by_hand():
    model = network()
    posterior = gaussian(model)
    p_s = softmax(outputs_of_draws(model, posterior, 5, seed=3))

    with unchanged(model):
        p = predict(
            model,
            X,
            posterior,
            samples=5,
            seed=3,
            batch_size=8,
            keep_samples=True,
            verbose=0,
        )

    mean = p_s.mean(0)
    np.testing.assert_allclose(p.mean, mean, 1e-5)
    np.testing.assert_allclose(p.log_mean, np.log(mean), 1e-5, 1e-5)
    np.testing.assert_allclose(p.stddev, p_s.std(0), 1e-4, 1e-6)
    np.testing.assert_allclose(p.samples, p_s, 1e-5)
    np.testing.assert_allclose(p.entropy, entropy(mean), 1e-5)
    np.testing.assert_allclose(p.expected_entropy, entropy(p_s).mean(0), 1e-5)
    np.testing.assert_allclose(
        p.mutual_information, entropy(mean) - entropy(p_s).mean(0), 1e-3, 1e-6
    )
    votes = (p_s.argmax(-1)[..., None] == np.arange(3)).sum(0)
    np.testing.assert_array_equal(p.votes, votes)
    np.testing.assert_allclose(p.variation_ratio, 1 - votes.max(-1) / 5)
    assert p.num_samples == 5
    assert p.y is None


def test_probabilities_are_averaged_in_log_space():
    model = network()
    model.set_weights([np.zeros(w.shape) for w in model.get_weights()])
    zero = model.get_weights()
    members = [[*zero[:-1], [0.0, -900.0, b]] for b in (-800.0, -810.0)]
    p = predict(model, X, Ensemble(members), verbose=0)
    log_p = [0.0, -900.0, -800.0 + np.log((1 + np.exp(-10.0)) / 2.0)]
    np.testing.assert_allclose(p.log_mean[0], log_p, 1e-6)
    assert p.mean.max() == 1.0


def test_a_probability_of_exactly_zero_stays_zero():
    model = keras.Sequential([keras.Input((2,)), keras.layers.Identity()])
    p = predict(
        model,
        np.array([[1.0, 0.0], [0.5, 0.5]]),
        options=PredictOptions(task="classification", from_logits=False),
        verbose=0,
    )
    half = np.log(0.5)
    np.testing.assert_allclose(p.log_mean, [[0, -np.inf], [half, half]], 1e-6)
    np.testing.assert_allclose(p.entropy, [0.0, np.log(2.0)], 1e-6)
    np.testing.assert_allclose(p.expected_entropy, [0.0, np.log(2.0)], 1e-6)


def test_outputs_of_any_rank_keep_their_axes():
    model = network(units=6)
    posterior = gaussian(model)
    logits = np.reshape(outputs_of_draws(model, posterior, 3), (3, 21, 2, 3))
    inputs = keras.Input((4,))
    outputs = keras.layers.Reshape((2, 3))(model(inputs))
    p = predict(
        keras.Model(inputs, outputs),
        X,
        posterior,
        samples=3,
        batch_size=4,
        options=PredictOptions(task="classification", from_logits=True),
        verbose=0,
    )
    p_s = softmax(logits)
    np.testing.assert_allclose(p.mean, p_s.mean(0), 1e-5)
    np.testing.assert_allclose(p.stddev, p_s.std(0), 1e-4, 1e-6)
    votes = (p_s.argmax(-1)[..., None] == np.arange(3)).sum(0)
    np.testing.assert_array_equal(p.votes, votes)

    flat = keras.Model(inputs, model(inputs)[:, 0])  # of shape (examples,)
    p = predict(
        flat,
        X,
        options=PredictOptions(task="binary", from_logits=True),
        verbose=0,
    )
    odds = np.exp(np.array(flat(X), "float64"))
    np.testing.assert_allclose(p.mean[:, 1], odds / (1 + odds), 1e-5)


class Pairs(keras.utils.PyDataset):
    num_batches = 3

    def __getitem__(self, index):
        rows = slice(8 * index, 8 * index + 8)
        return X[rows], Y[rows]


@pytest.mark.parametrize("buffer_bytes", [1, 300, 2**28])
@pytest.mark.parametrize("kind", ["dataset", "py_dataset", "generator"])
def test_all_sources_and_buffers_agree_exactly(kind, buffer_bytes, monkeypatch):
    model = network()
    posterior = gaussian(model)
    expected = predict(model, X, posterior, samples=3, batch_size=8, verbose=0)
    x = {
        "dataset": tf.data.Dataset.from_tensor_slices((X, Y)).batch(8),
        "py_dataset": Pairs(),
        "generator": (Pairs()[i] for i in range(3)),
    }[kind]
    monkeypatch.setattr(Batches, "buffer_bytes", buffer_bytes)
    p = predict(model, x, posterior, samples=3, verbose=0)
    for name in ("log_mean", "stddev", "expected_entropy", "votes"):
        np.testing.assert_array_equal(getattr(p, name), getattr(expected, name))
    np.testing.assert_array_equal(p.y, Y)


@pytest.mark.parametrize("nbytes", [1, 2**24])
def test_a_function_gets_each_batch_and_nothing_is_kept(nbytes, monkeypatch):
    monkeypatch.setattr(sys.modules[predict.__module__], "_SMALL", nbytes)
    # The masks depend on the index of the batch.
    model = network(keras.layers.Dropout(0.5))
    options = dict(samples=3, seed=1, verbose=0)
    data = tf.data.Dataset.from_tensor_slices((X, Y)).batch(8)
    expected = predict(model, data, MCDropout(), **options)
    parts, references = [], []

    def add(prediction):
        assert all(reference() is None for reference in references[:-2])
        references.append(weakref.ref(prediction))
        parts.append((prediction.log_mean, prediction.votes, prediction.y))

    found = predict(model, data, MCDropout(), on_batch=add, **options)
    assert found is None and [len(y) for *_, y in parts] == [8, 8, 5]
    for part, name in zip(
        zip(*parts, strict=True), ("log_mean", "votes", "y"), strict=True
    ):
        np.testing.assert_array_equal(
            np.concatenate(part), getattr(expected, name)
        )


def test_every_draw_sees_the_same_order_of_a_shuffled_data_set(monkeypatch):
    monkeypatch.setattr(Batches, "buffer_bytes", 128)
    model = network()
    posterior = gaussian(model)
    dataset = tf.data.Dataset.from_tensor_slices((X, np.arange(21)))
    dataset = dataset.shuffle(21, reshuffle_each_iteration=True).batch(4)
    p = predict(model, dataset, posterior, samples=4, verbose=0)
    expected = softmax(outputs_of_draws(model, posterior, 4)).mean(0)
    assert sorted(p.y) == list(range(21)) != list(p.y)
    np.testing.assert_allclose(p.mean, expected[p.y], 1e-5)


class Traced(keras.layers.Layer):
    """Counts how often Python runs through it."""

    traces = 0

    def call(self, inputs):
        self.traces += 1
        return inputs


def test_one_trace_serves_all_draws_chunks_and_calls(monkeypatch):
    monkeypatch.setattr(Batches, "buffer_bytes", 1)
    layer = Traced()
    model = network(layer)
    model.predict(X, verbose=0)
    own_function = model.predict_function
    layer.traces = 0
    posterior = gaussian(model)
    dataset = tf.data.Dataset.from_tensor_slices(X).batch(8)
    predict(model, dataset, posterior, samples=3, verbose=0)
    predict(model, X, posterior, samples=3, seed=1, batch_size=8, verbose=0)
    assert layer.traces == 1
    predict(model, X, batch_size=8, verbose=0)  # nothing is stacked
    predict(model, X, batch_size=8, verbose=0)
    assert layer.traces == 2
    assert model.predict_function is own_function

    model.compile("sgd", "mse")  # another meaning of the output
    assert predict(model, X, batch_size=8, verbose=0).task == "regression"
    assert layer.traces == 3


def test_dropout_has_a_trace_of_its_own_and_masks_by_batch():
    layer = Traced()
    model = network(layer, keras.layers.Dropout(0.5))
    x = np.ones_like(X)
    kwargs = dict(samples=4, batch_size=8, keep_samples=True, verbose=0)
    layer.traces = 0
    with unchanged(model):
        first = predict(model, x, MCDropout(), **kwargs)
        plain = predict(model, x, batch_size=8, verbose=0)
        again = predict(model, x, MCDropout(), **kwargs)
    assert layer.traces == 2
    np.testing.assert_array_equal(first.samples, again.samples)
    np.testing.assert_allclose(plain.mean, softmax(model(x)), 1e-5)
    same = first.samples[:, :8] == first.samples[:, 8:16]
    assert same.mean() < 0.5
    assert len(np.unique(first.samples[:, 0, 0])) == 4


def test_an_ensemble_is_averaged_over_every_member_once():
    model = network()
    members = [network() for _ in range(3)]
    p = predict(model, X, Ensemble.from_models(members), verbose=0)
    assert p.num_samples == 3
    mean = np.mean([softmax(m(X)) for m in members], 0)
    np.testing.assert_allclose(p.mean, mean, 1e-5)


class Offering(keras.optimizers.SGD):
    """An optimizer with a posterior."""

    def posterior(self, model):
        return gaussian(model)


def test_the_posterior_of_the_optimizer_is_the_default():
    model = network()
    expected = predict(model, X, gaussian(model), samples=2, verbose=0)
    optimizer = keras.optimizers.LossScaleOptimizer(Offering(0.1))
    model.compile(optimizer, CROSSENTROPY)
    p = predict(model, X, samples=2, verbose=0)
    np.testing.assert_array_equal(p.mean, expected.mean)


@pytest.mark.parametrize("optimizer", [keras_bdl.OGN, keras_bdl.KFAC])
def test_network_trained_without_noise_is_predicted_with_its_trained_weights(
    optimizer,
):
    model = keras_bdl.Sequential([keras.Input((4,)), keras.layers.Dense(3)])
    model.compile(optimizer(0.1), CROSSENTROPY)
    model.fit(X, np.arange(len(X)) % 3, verbose=0)
    p = predict(model, X, verbose=0)
    assert p.num_samples == 1
    np.testing.assert_allclose(p.mean, softmax(model(X)), 1e-5)
    posterior = keras_bdl.posterior_of(model)
    assert predict(model, X, posterior, samples=3, verbose=0).num_samples == 3


class Doubling(keras.layers.Layer):
    """Draws its weight: twice or minus twice the mean."""

    def build(self, input_shape):
        self.scale = self.add_weight(shape=(), initializer="ones")

    def call(self, inputs):
        return inputs * self.scale

    def sample_weights(self, seed):
        return [(self.scale, 2.0 if seed % 2 else -2.0)]


def test_variational_layers_are_sampled_by_default():
    model = network(Doubling(), units=1, loss="mse")
    with unchanged(model):
        p = predict(model, X, samples=8, keep_samples=True, verbose=0)
    assert p.num_samples == 8
    assert np.ptp(p.samples[:, 0, 0]) > 0


@pytest.mark.parametrize("labels", [3, 1])
@pytest.mark.parametrize("from_logits", [True, False])
def test_bernoulli_outputs_become_two_classes(labels, from_logits):
    loss = keras.losses.BinaryCrossentropy(from_logits=from_logits)
    model = network(units=labels, loss=loss)
    if not from_logits:
        model.layers[-1].activation = keras.activations.sigmoid
    posterior = gaussian(model)
    raw = np.array(outputs_of_draws(model, posterior, 3), "float64")
    p_s = 1 / (1 + np.exp(-raw)) if from_logits else raw
    y = (np.sum(X, -1, keepdims=True) > np.arange(labels)).astype("float32")
    dataset = tf.data.Dataset.from_tensor_slices((X, y)).batch(8)

    p = predict(model, dataset, posterior, samples=3, verbose=0)

    expected = np.stack([1 - p_s, p_s], -1)
    if labels == 1:
        expected, y = expected[:, :, 0], y[:, 0]
    np.testing.assert_allclose(p.mean, expected.mean(0), 1e-5)
    np.testing.assert_allclose(
        p.expected_entropy, entropy(expected).mean(0), 1e-5
    )
    np.testing.assert_array_equal(p.y, y)
    assert p.y.dtype == "int32"


def test_regression_gives_mean_and_both_variances():
    model = network(units=2, loss="mse")
    posterior = gaussian(model)
    m_s = np.array(outputs_of_draws(model, posterior, 6))
    noise = np.array([0.5, 2.0])
    p = predict(
        model,
        X,
        posterior,
        samples=6,
        options=PredictOptions(noise_stddev=noise),
        keep_samples=True,
        verbose=0,
    )
    np.testing.assert_allclose(p.mean, m_s.mean(0), 1e-4, 1e-6)
    np.testing.assert_allclose(p.variance_between, m_s.var(0), 1e-4, 1e-6)
    np.testing.assert_allclose(p.variance_within, [[0.25, 4.0]] * 21, 1e-6)
    np.testing.assert_allclose(p.samples, m_s, 1e-4, 1e-6)
    np.testing.assert_allclose(p.sample_variances[3], [0.25, 4.0], 1e-6)


def test_a_network_predicts_its_own_noise_through_moments():
    model = network(units=2, loss=lambda y, out: out)
    posterior = gaussian(model)
    out = np.array(outputs_of_draws(model, posterior, 4), "float64")
    dataset = tf.data.Dataset.from_tensor_slices((X, X[:, 0])).batch(8)
    p = predict(
        model,
        dataset,
        posterior,
        samples=4,
        options=PredictOptions(
            moments=lambda o: (o[:, :1], keras.ops.softplus(o[:, 1:]))
        ),
        keep_samples=True,
        verbose=0,
    )
    v_s = np.log1p(np.exp(out[..., 1:]))
    np.testing.assert_allclose(p.variance_within, v_s.mean(0), 1e-5)
    np.testing.assert_allclose(
        p.variance, v_s.mean(0) + out[..., :1].var(0), 1e-4
    )
    np.testing.assert_allclose(p.sample_variances, v_s, 1e-5)
    np.testing.assert_array_equal(p.y, X[:, :1])


def two_outputs():
    inputs = keras.Input((4,))
    hidden = keras.layers.Dense(5, activation="tanh")(inputs)
    logits = keras.layers.Dense(3, name="logits")(hidden)
    value = keras.layers.Dense(1, name="value")(hidden)
    return keras.Model(inputs, {"kind": logits, "size": value})


@pytest.mark.parametrize("told", [True, False])
def test_several_outputs_keep_their_structure(told):
    model = two_outputs()
    options = {"noise_stddev": {"size": 0.5}}
    if told:
        options["task"] = {"kind": "classification", "size": "regression"}
        options["from_logits"] = {"kind": True}
    else:
        model.compile("sgd", {"kind": CROSSENTROPY, "size": "mse"})
    posterior = gaussian(model)
    draws = outputs_of_draws(model, posterior, 3)
    y = {"kind": Y, "size": X[:, 0]}
    dataset = tf.data.Dataset.from_tensor_slices((X, y)).batch(8)
    p = predict(
        model,
        dataset,
        posterior,
        samples=3,
        options=PredictOptions(**options),
        verbose=0,
    )
    np.testing.assert_allclose(
        p["kind"].mean, softmax([d["kind"] for d in draws]).mean(0), 1e-5
    )
    sizes = np.array([d["size"] for d in draws])
    np.testing.assert_allclose(p["size"].mean, sizes.mean(0), 1e-4, 1e-6)
    np.testing.assert_allclose(
        p["size"].variance, sizes.var(0) + 0.25, 1e-4, 1e-6
    )
    np.testing.assert_array_equal(p["kind"].y, Y)
    np.testing.assert_array_equal(p["size"].y, X[:, :1])


@pytest.mark.parametrize("policy", ["mixed_bfloat16", "mixed_float16"])
@pytest.mark.parametrize("activation", [None, "softmax"])
def test_half_precision_outputs_are_normalised_in_float32(policy, activation):
    with dtype_policy(policy):
        loss = keras.losses.SparseCategoricalCrossentropy(activation is None)
        model = network(units=40, loss=loss)
    model.layers[-1].activation = keras.activations.get(activation)
    p = predict(model, X, verbose=0)
    np.testing.assert_allclose(p.mean.sum(-1), 1.0, 1e-6)
    output = np.array(keras.ops.cast(model(X), "float32"))
    expected = output / output.sum(-1, keepdims=True)
    if activation is None:
        expected = softmax(output)
    np.testing.assert_allclose(p.mean, expected, 0.02)


def test_xla_and_eager_give_the_same():
    model = network()
    posterior = gaussian(model)
    expected = predict(model, X, posterior, samples=2, verbose=0)
    for how in ({"jit_compile": True}, {"run_eagerly": True}):
        model.compile("sgd", CROSSENTROPY, **how)
        p = predict(model, X, posterior, samples=2, verbose=0)
        np.testing.assert_allclose(p.mean, expected.mean, 1e-5)


def test_a_mirrored_model_predicts_what_a_plain_one_does(mirrored):
    model = network()
    with mirrored.scope():
        copy = network()
    copy.set_weights(model.get_weights())
    posterior = gaussian(model)
    p = predict(model, X, posterior, samples=2, verbose=0)
    q = predict(copy, X, posterior, samples=2, verbose=0)
    np.testing.assert_allclose(p.mean, q.mean, 1e-6)


def test_a_model_without_variables_yet_is_built_by_the_data():
    model = keras.Sequential([keras.layers.Dense(2)])
    dataset = tf.data.Dataset.from_tensor_slices(X).batch(8)
    p = predict(
        model, dataset, options=PredictOptions(task="regression"), verbose=0
    )
    np.testing.assert_allclose(p.mean, model(X), 1e-5)


def test_a_model_is_freed_after_its_predictions():
    with own_garbage():
        model = network()
        predict(model, X, gaussian(model), samples=2, verbose=0)
        reference = weakref.ref(model)
        del model
        keras.utils.clear_session()
        gc.collect()
        assert reference() is None


def test_the_progress_bar_counts_draws_times_batches(capsys):
    model = network()
    predict(model, X, gaussian(model), samples=5, batch_size=8, verbose=2)
    assert "15/15" in capsys.readouterr().out
    predict(model, X, verbose=0)
    assert capsys.readouterr().out == ""


def failing_batches():
    yield X
    raise OSError("disk on fire")


def test_model_does_not_change_when_a_prediction_raises(monkeypatch):
    monkeypatch.setattr(Batches, "buffer_bytes", 1)
    model = network()
    posterior = gaussian(model)
    with unchanged(model):
        with pytest.raises(OSError, match="disk on fire"):
            predict(model, failing_batches(), posterior, samples=2, verbose=0)
    bad = np.where(np.arange(21)[:, None] == 20, np.nan, X)
    with unchanged(model):
        with pytest.raises(ValueError, match="`x` must not contain NaN"):
            predict(model, iter([X, bad]), posterior, samples=2, verbose=0)
    diverged = gaussian(model, variance=0.0)
    diverged._mean[-1] = np.array([np.nan, 0.0, 0.0])
    with unchanged(model):
        with pytest.raises(ValueError, match="NaN or infinity for examples 0"):
            predict(model, X, diverged, samples=2, verbose=0)


def test_wrong_from_logits_is_noticed_from_the_outputs():
    model = network()
    with pytest.raises(
        ValueError, match="must hold probabilities.*from_logits="
    ):
        predict(model, X, options=PredictOptions(from_logits=False), verbose=0)
    model.layers[-1].activation = keras.activations.softmax
    with pytest.raises(
        ValueError, match="must hold logits.*`from_logits=False`"
    ):
        predict(model, X, options=PredictOptions(from_logits=True), verbose=0)
    model = network(units=1, loss="binary_crossentropy")
    with pytest.raises(
        ValueError, match="must hold probabilities.*from_logits="
    ):
        predict(model, X * 100, verbose=0)
    model.layers[-1].activation = keras.activations.sigmoid
    with pytest.warns(UserWarning, match="declared as logits"):
        predict(model, X, options=PredictOptions(from_logits=True), verbose=0)


@pytest.mark.parametrize(
    "kwargs, match",
    [
        ({"samples": 0}, "`samples` must be a positive integer"),
        ({"samples": 2.0}, "`samples` must be a positive integer"),
        ({"samples": True}, "`samples` must be a positive integer.*True"),
        ({"posterior": "swag"}, "`posterior` must be a `keras_bdl.extend"),
        ({"keep_samples": "yes"}, "`keep_samples` must be `True` or `False`"),
        ({"verbose": 3}, "`verbose` must be"),
        ({"task": "ranking"}, "`task` must be one of.*ranking"),
        ({"noise_stddev": 1.0}, "`noise_stddev` must be `None`.*stddev=1.0$"),
        (
            {"noise_stddev": -1.0},
            "`noise_stddev` must .*finite numbers, not neg",
        ),
        (
            {"noise_stddev": "a"},
            "`noise_stddev` must be one or more finite numbers",
        ),
        ({"moments": 3}, "`moments` must be a function"),
        (
            {"batch_norm_fraction": 0.5},
            "`batch_norm_fraction` needs `batch_norm_data`",
        ),
        (
            {"batch_norm_fraction": 0, "batch_norm_data": X},
            "`batch_norm_fraction` must be a number above 0.0 and at most 1",
        ),
        (
            {"batch_norm_fraction": "a", "batch_norm_data": X},
            "`batch_norm_fraction` must be a number above 0",
        ),
        (
            {"batch_norm_data": tf.data.Dataset.from_tensors(X).repeat()},
            "^`batch_norm_data` must be finite. .* cut the data",
        ),
        (
            {"noise_stddev": [1.0] * 5, "task": "regression"},
            "`noise_stddev` must be one value for all outputs",
        ),
        (
            {"noise_stddev": np.ones(5), "task": "regression"},
            r"`noise_stddev` must be a number or.*shape \(21, 3\)",
        ),
        (
            {"noise_stddev": 1.0, "moments": lambda o: (o, o)},
            "`noise_stddev` must be `None` if `moments`",
        ),
        (
            {"moments": lambda o: (o, o - 100.0)},
            "negative variance.*for examples 0 to 20",
        ),
        ({"moments": lambda o: o}, "`moments` must return a pair"),
        ({"batch_size": -1}, "`batch_size` must be a positive integer"),
    ],
)
def test_wrong_arguments_are_refused(kwargs, match):
    model = network()
    with unchanged(model), pytest.raises(ValueError, match=match):
        kwargs = predict_arguments(**{"verbose": 0, **kwargs})
        predict(model, X, **kwargs)


@pytest.mark.parametrize("model", ["model", keras.layers.Dense(3)])
def test_model_must_be_a_keras_model(model):
    with pytest.raises(ValueError, match="`model` must be a `keras.Model`"):
        predict(model, X)


@pytest.mark.parametrize("x", [X[:, :3], X[0], X[:, None, :, None]])
def test_wrong_shape_gives_the_same_error_before_and_after_a_prediction(x):
    model = network()
    with pytest.raises(ValueError) as early:
        predict(model, x, verbose=0)
    predict(model, X, batch_size=8, verbose=0)
    predict(model, X, batch_size=5, verbose=0)
    with unchanged(model), pytest.raises(ValueError) as late:
        predict(model, x, verbose=0)
    assert str(late.value) == str(early.value)
    assert len(str(late.value)) < 500


def test_axes_that_the_model_leaves_open_share_a_trace():
    layer = Traced()
    model = keras.Sequential(
        [keras.Input((None, 4)), layer, keras.layers.GlobalMaxPooling1D()]
    )
    model.compile("sgd", "mse")
    layer.traces = 0
    for length in (2, 3, 5, 7, 11):
        x = np.tile(X[:, None], (1, length, 1))
        p = predict(model, x, verbose=0)
        np.testing.assert_array_equal(p.mean, X)
    assert layer.traces == 2  # one length, then any


def test_a_changed_architecture_is_traced_again():
    model = network()
    predict(model, X, verbose=0)
    model.pop()
    model.add(keras.layers.Dense(3))
    p = predict(model, X, verbose=0)
    np.testing.assert_allclose(p.mean, softmax(model(X)), 1e-5)


def test_predictions_of_several_models_give_no_warning_of_retracing(caplog):
    logger = tf.get_logger()
    logger.addHandler(caplog.handler)
    for _ in range(7):  # TensorFlow warns after five traces of one function
        predict(network(), X, verbose=0)
    logger.removeHandler(caplog.handler)
    assert not [r for r in caplog.records if "retracing" in r.getMessage()]


def test_a_posterior_of_another_model_is_refused():
    model = network()
    with unchanged(model), pytest.raises(ValueError, match="[Rr]eceived"):
        predict(model, X, gaussian(network(units=2)), verbose=0)


def test_uncompiled_model_needs_task_and_from_logits():
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(2)])
    with pytest.raises(ValueError, match="compiled loss does not say"):
        predict(model, X, verbose=0)


def test_batch_size_of_the_inputs_does_not_change_batch_norm_statistics():
    model = network(keras.layers.BatchNormalization())
    means = [
        predict(
            model,
            X,
            gaussian(model),
            samples=2,
            batch_size=batch_size,
            batch_norm_data=X,
            verbose=0,
        ).mean
        for batch_size in (32, 1)
    ]
    np.testing.assert_allclose(*means, rtol=1e-4, atol=1e-6)


def test_stateful_layer_is_refused():
    model = keras.Sequential(
        [
            keras.Input((3, 2), batch_size=4),
            keras.layers.SimpleRNN(2, stateful=True),
        ]
    )
    model.compile("sgd", "mse")
    with pytest.raises(ValueError, match="no stateful layer"):
        predict(model, np.zeros((4, 3, 2)), verbose=0)


def test_a_layer_that_only_training_builds_is_refused_by_name():
    class Auxiliary(keras.Model):
        def __init__(self):
            super().__init__()
            self.norm = keras.layers.BatchNormalization()
            self.auxiliary = keras.layers.Dense(2)

        def build(self, shape):
            self.norm.build(shape)

        def call(self, x, training=False):
            x = self.norm(x, training=training)
            if training:
                self.add_loss(keras.ops.mean(self.auxiliary(x)))
            return x

    model = Auxiliary()
    with pytest.raises(ValueError, match=r"model\(x, training=True\)` once"):
        predict(
            model,
            X,
            options=PredictOptions(task="regression"),
            batch_norm_data=X,
            verbose=0,
        )
    predict(
        model,
        X,
        options=PredictOptions(task="regression"),
        batch_norm_data=X,
        verbose=0,
    )


def test_standard_error_is_that_of_the_mean_of_independent_samples():
    model = network()
    posterior = gaussian(model)
    p = predict(model, X, posterior, samples=7, keep_samples=True, verbose=0)
    expected = p.samples.std(0, ddof=1) / np.sqrt(7)
    np.testing.assert_allclose(p.standard_error, expected, 1e-4, 1e-6)
    assert np.all(np.isnan(predict(model, X, verbose=0).standard_error))


def test_auto_draws_samples_until_the_error_is_small_enough(monkeypatch):
    monkeypatch.setattr(Batches, "buffer_bytes", 1)  # one batch a part
    model = network()
    posterior = gaussian(model)
    p = predict(model, X, posterior, samples="auto", batch_size=7, verbose=0)
    assert p.standard_error.max() <= 0.01
    assert p.num_samples % 20 == 0 and 20 < p.num_samples < 1000
    rough = predict(
        model,
        X,
        posterior,
        samples="auto",
        options=PredictOptions(tolerance=0.2),
        verbose=0,
    )
    assert rough.num_samples == 20
    seeds = posterior.seeds(0, 1000)[:20]
    samples = []
    for seed in seeds:
        with posterior.sampled(model, seed):
            samples.append(softmax(model(X)))
    np.testing.assert_allclose(rough.mean, np.mean(samples, 0), 1e-5)
    members = Ensemble.from_models([network() for _ in range(3)])
    assert (
        predict(model, X, members, samples="auto", verbose=0).num_samples == 3
    )
    with pytest.warns(UserWarning, match="1000 samples did not reach"):
        predict(
            model,
            X,
            posterior,
            samples="auto",
            options=PredictOptions(tolerance=1e-4),
            verbose=0,
        )
    with pytest.raises(ValueError, match="`keep_samples` needs a number"):
        predict(
            model, X, posterior, samples="auto", keep_samples=True, verbose=0
        )


def test_model_and_posterior_may_change_between_predictions(capsys):
    model = network()
    posterior = gaussian(model)
    kwargs = dict(samples=3, verbose=2)
    before = predict(model, X, posterior, **kwargs).mean
    assert capsys.readouterr().out.rstrip().endswith("3 samples, drawn once")
    np.testing.assert_array_equal(
        predict(model, X, gaussian(model), **kwargs).mean, before
    )
    wider = predict(model, X, gaussian(model, 0.2), **kwargs).mean
    assert not np.allclose(wider, before)
    model.layers[-1].bias.assign_add([1.0, 0.0, 0.0])
    moved = predict(model, X, gaussian(model), **kwargs).mean
    assert not np.allclose(moved, before)


def test_auto_says_how_many_samples_were_drawn(capsys):
    model = network()
    posterior = gaussian(model)

    def says(tolerance):
        p = predict(
            model,
            X,
            posterior,
            samples="auto",
            options=PredictOptions(tolerance=tolerance),
            verbose=2,
        )
        line = capsys.readouterr().out.splitlines()[-1]
        number = f"{p.num_samples} samples, "
        assert number in line
        return line.split(number)[1]

    assert says(0.5) == says(0.05) == "drawn once"


def test_samples_larger_than_stack_bytes_give_the_same(capsys):
    model = network()
    posterior = gaussian(model)
    whole = predict(model, X, posterior, samples=5, seed=2, verbose=0)
    of_one = sum(w.nbytes for w in posterior.mean())
    options = PredictOptions(stack_bytes=2 * of_one + 1)
    kwargs = {"samples": 5, "options": options}
    parts = predict(
        model, X, posterior, seed=3, batch_size=8, verbose=2, **kwargs
    )
    assert "drawn again for each part of the data, in 3 groups" in (
        capsys.readouterr().out
    )
    parts = predict(model, X, posterior, seed=2, verbose=0, **kwargs)
    for name in ("mean", "stddev", "expected_entropy", "standard_error"):
        np.testing.assert_allclose(
            getattr(parts, name), getattr(whole, name), 1e-5, 1e-6
        )
    np.testing.assert_array_equal(parts.votes, whole.votes)


def test_large_outputs_are_averaged_part_by_part(monkeypatch):
    model = network()
    posterior = gaussian(model)
    whole = predict(model, X, posterior, samples=5, verbose=0)
    monkeypatch.setattr(sample_loop, "_USUAL", 1)
    monkeypatch.setattr(sample_loop, "_LARGEST", 2 * X.shape[0] * 3)
    model.compile("sgd", CROSSENTROPY)  # another trace
    parts = predict(model, X, posterior, samples=5, verbose=0)
    for name in ("mean", "stddev", "expected_entropy"):
        np.testing.assert_allclose(
            getattr(parts, name), getattr(whole, name), 1e-5, 1e-6
        )


@pytest.mark.parametrize(
    "values, samples",
    [(0, 2**20), (2**17, 8), (2**19, 4), (2**20, 4), (2**21, 2), (2**24, 1)],
)
def test_a_part_has_many_small_outputs_or_a_few_large_ones(values, samples):
    size = sample_loop._samples_of_a_part(tf.constant(values, "int64"))
    assert int(size) == samples
