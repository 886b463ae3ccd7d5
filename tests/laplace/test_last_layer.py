"""Closed forms of the Laplace approximation of last layers."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers

import keras_bdl as bdl
from keras_bdl._laplace import _fisher_information
from keras_bdl._laplace import _last_layer
from keras_bdl._laplace._fisher_information import FisherInformation

RNG = np.random.default_rng(0)
N = 24
CLASSES, LINEAR = keras.losses.SparseCategoricalCrossentropy, "linear"
COUNTS = RNG.poisson(2.0, (N, 4)).astype("float32")
BITS = RNG.integers(0, 2, (N, 4)).astype("float32")
REALS = RNG.normal(size=(N, 4)).astype("float32")
VECTORS = RNG.normal(size=(N, 3)).astype("float32")
SEQUENCES = RNG.normal(size=(N, 5, 3)).astype("float32")
PIXELS = RNG.normal(size=(N, 2, 3, 3)).astype("float32")
NOISE = bdl.likelihoods.Gaussian(0.5)
LEARNED = bdl.likelihoods.Gaussian()


def head(units, activation, *behind, bias=True):
    return [layers.Dense(units, activation, use_bias=bias, name="z"), *behind]


# The input, the loss, the last layers.
HEADS = {
    "class logits": (VECTORS, CLASSES(True), lambda: head(4, None)),
    "without a bias": (
        VECTORS,
        CLASSES(True),
        lambda: head(4, None, bias=False),
    ),
    "softmax": (VECTORS, CLASSES(), lambda: head(4, "softmax")),
    "separate softmax": (
        VECTORS,
        CLASSES(),
        lambda: head(4, None, layers.Dropout(0.5), layers.Softmax()),
    ),
    "separate activation": (
        VECTORS,
        CLASSES(),
        lambda: head(4, None, layers.Activation("softmax")),
    ),
    "log softmax": (VECTORS, CLASSES(True), lambda: head(4, "log_softmax")),
    "one sigmoid": (
        VECTORS,
        keras.losses.BinaryCrossentropy(),
        lambda: head(1, "sigmoid"),
    ),
    "several labels": (
        VECTORS,
        keras.losses.BinaryCrossentropy(True),
        lambda: head(4, None),
    ),
    "known noise": (VECTORS, NOISE, lambda: head(4, None)),
    "predicted noise": (
        VECTORS,
        LEARNED,
        lambda: head(8, bdl.likelihoods.mean_and_stddev),
    ),
    "learned noise": (
        VECTORS,
        LEARNED,
        lambda: head(4, None, bdl.likelihoods.LearnedStddev(0.7)),
    ),
    "counts": (VECTORS, keras.losses.Poisson(), lambda: head(4, "exponential")),
    "sequence": (SEQUENCES, CLASSES(True), lambda: head(4, None)),
    "pixels": (
        PIXELS,
        CLASSES(),
        lambda: [layers.Conv2D(4, 1, activation="softmax", name="z")],
    ),
}


def network(case):
    x, loss, last = HEADS[case]
    keras.utils.set_random_seed(1)
    hidden = layers.Dense(5, "tanh")
    model = keras.Sequential([keras.Input(x.shape[1:]), hidden, *last()])
    model.compile("sgd", loss)
    for v in model.get_layer("z").trainable_variables:
        v.assign(1.5 * RNG.normal(size=v.shape))
    return model, x


def fit(model, data, **kwargs):
    kwargs = {"prior_precision": 1.0, "refinements": 0, "verbose": 0} | kwargs
    return bdl.fit_laplace(model, data, **kwargs)


def closed_forms(monkeypatch, on=None):
    """Records whether there were closed forms, or turns them off."""
    found = []
    heads_of = _last_layer.heads_of

    def recorded(*args):
        found.append(heads_of(*args) if on is None else None)
        return found[-1]

    monkeypatch.setattr(_fisher_information, "heads_of", recorded)
    return found


def information_of_outputs(model, outputs):
    """E[s s^T] of the outputs at one position, in float64."""
    f = np.asarray(outputs, "float64")
    loss = model.loss
    name = loss.name
    if name == "gaussian" and loss.noise_stddev:
        return np.eye(len(f)) / 0.25
    if name == "gaussian":
        stddev = f[len(f) // 2 :]
        return np.diag(np.concatenate([1 / stddev**2, 2 / stddev**2]))
    if name == "poisson":
        return np.diag(1 / f)
    if name == "binary_crossentropy":
        p = 1 / (1 + np.exp(-f)) if loss.get_config()["from_logits"] else f
        slope = p * (1 - p)
        return np.diag(slope if loss.get_config()["from_logits"] else 1 / slope)
    if not loss.get_config()["from_logits"]:
        return np.diag(1 / f)
    p = np.exp(f - f.max())
    p /= p.sum()
    return np.diag(p) - np.outer(p, p)


def brute_force(model, x, omega):
    """The factors and the diagonal, example by example, by Jacobians."""
    layer = model.get_layer("z")
    before = keras.Model(model.inputs[0], layer.input)
    behind = model.layers[model.layers.index(layer) :]
    kernel = np.reshape(layer.kernel, (-1, layer.kernel.shape[-1]))
    bias = 0.0 if layer.bias is None else layer.bias.numpy()
    ins, outs = kernel.shape
    rows = ins + (layer.bias is not None)
    a, s, diagonal = np.zeros((rows, rows)), 0.0, 0.0
    for i in range(len(x)):
        features = np.reshape(before(x[i : i + 1]), (-1, ins))
        positions = len(features)
        for h in features:
            z = tf.constant((h @ kernel + bias)[None])
            with tf.GradientTape() as tape:
                tape.watch(z)
                f = layer.activation(z)
                for later in behind[1:]:
                    f = later(f, training=False)
            j = np.asarray(tape.jacobian(f, z), "float64")[0, :, 0]
            c = j.T @ information_of_outputs(model, f[0]) @ j / positions
            one = np.append(h, 1.0)[:rows].astype("float64")
            a += omega[i] * np.outer(one, one)
            s += omega[i] * c / positions
            diagonal += omega[i] * np.outer(one**2, np.diag(c))
    return a / omega.sum(), s, diagonal


OMEGA = (1.0 + np.arange(N) % 3).astype("float32")


@pytest.mark.parametrize("case", HEADS)
def test_factors_and_diagonal_are_those_of_a_loop_of_jacobians(
    case, monkeypatch
):
    found = closed_forms(monkeypatch)
    model, x = network(case)
    a, s, diagonal = brute_force(model, x, OMEGA)
    data = (x, None, OMEGA)
    (block,) = fit(model, data, batch_size=7)._curvatures
    scale = np.outer(np.sqrt(np.diag(s)), np.sqrt(np.diag(s))) + 1e-12
    rebuilt = (block.outputs * block.values[1]) @ block.outputs.T
    np.testing.assert_allclose(rebuilt / scale, s / scale, atol=2e-5)
    rebuilt = (block.inputs * block.values[0]) @ block.inputs.T
    np.testing.assert_allclose(rebuilt, a, rtol=1e-4, atol=1e-5)
    curvature = fit(model, data, structure="diagonal", batch_size=7)._curvature
    kernel, *bias = [h for h in curvature if h is not None]
    parts = [
        np.reshape(kernel, (-1, kernel.shape[-1])),
        *(b[None] for b in bias),
    ]
    np.testing.assert_allclose(np.concatenate(parts), diagonal, rtol=2e-5)
    assert None not in found


@pytest.mark.parametrize("structure", ["kronecker", "diagonal"])
@pytest.mark.parametrize("case", HEADS)
def test_refinements_are_those_of_backward_passes(case, structure, monkeypatch):
    model, x = network(case)
    options = dict(structure=structure, refinements=3, batch_size=7)
    options |= dict(prior_precision="evidence")
    expected = None
    for on in (False, None):
        with monkeypatch.context() as patch:
            closed_forms(patch, on)
            posterior = fit(model, (x, None, OMEGA), **options)
        blocks = posterior.covariance_blocks()
        delta = [posterior.prior_precision]
        arrays = [delta, *(dense(block) for block in blocks)]
        expected = expected or arrays
    for one, other in zip(arrays, expected, strict=True):
        error = np.abs(np.subtract(one, other)).max()
        assert error < 1e-5 * np.abs(other).max()


def dense(block):
    if block.inputs is None:
        return np.ravel(block.values)
    columns = block.shape[1]
    outputs = np.eye(columns) if block.outputs is None else block.outputs
    root = np.kron(block.inputs, outputs) * np.sqrt(np.ravel(block.values))
    return root @ root.T


def counted_batches(monkeypatch):
    """Records the size of each batch that goes through the network."""
    sizes = []
    sums = FisherInformation._sums

    def recorded(information, batch, *args):
        sizes.append(batch.size)
        return sums(information, batch, *args)

    monkeypatch.setattr(FisherInformation, "_sums", recorded)
    return sizes


def test_refinements_read_no_data_if_the_features_fit(monkeypatch):
    sizes = counted_batches(monkeypatch)
    model, x = network("softmax")
    kept = fit(model, x, refinements=3, batch_size=10)
    assert sizes == [10, 10, 4]
    sizes.clear()
    monkeypatch.setattr(_last_layer, "free_bytes", lambda: 2 * 1200 - 1)
    # A batch of features takes 10 * 5 * 4 bytes, so three batches take 600.
    fit(model, x, refinements=3, batch_size=10)
    assert len(sizes) == 3
    sizes.clear()
    monkeypatch.setattr(_last_layer, "free_bytes", lambda: 2 * 600 - 1)
    again = fit(model, x, refinements=3, batch_size=10)
    assert len(sizes) == 4 * 3
    for one, other in zip(
        kept.covariance_blocks(), again.covariance_blocks(), strict=True
    ):
        np.testing.assert_allclose(dense(one), dense(other), rtol=1e-6)


def test_batches_of_unknown_number_are_kept_while_they_fit(monkeypatch):
    sizes = counted_batches(monkeypatch)
    monkeypatch.setattr(_last_layer, "free_bytes", lambda: 2 * 600 - 1)
    model, x = network("softmax")
    data = (
        tf.data.Dataset.from_tensor_slices(x).batch(10).filter(lambda x: True)
    )
    fit(model, data, refinements=1, dataset_size=N)
    assert len(sizes) == 2 * 3


def test_saturated_probabilities_keep_their_digits():
    model, x = network("class logits")
    kernel = model.get_layer("z").kernel
    kernel.assign(12.0 * kernel)
    before = keras.Model(model.inputs[0], model.get_layer("z").input)
    logits = np.asarray(before(x), "float64") @ kernel.numpy()
    logits += model.get_layer("z").bias.numpy()
    p = np.exp(logits - logits.max(-1, keepdims=True))
    p /= p.sum(-1, keepdims=True)
    assert (p.max(-1) > 1 - 1e-7).mean() > 0.3  # 1 in float32
    rest = (p.sum(-1, keepdims=True) * (1 - np.eye(4)[p.argmax(-1)]) * p).sum(
        -1
    )
    expected = np.where(p > 0.5, p * rest[:, None], p * (1 - p)).sum(0)
    found = fit(model, x, structure="diagonal")._curvature[-1]
    np.testing.assert_allclose(found, expected, rtol=1e-3)
    alone = fit(model, x[p.max(-1) > 1 - 1e-7], structure="diagonal")
    sure = p.max(-1) > 1 - 1e-7
    expected = np.where(p > 0.5, p * rest[:, None], p * (1 - p))[sure].sum(0)
    np.testing.assert_allclose(alone._curvature[-1], expected, rtol=1e-3)


def wide(monkeypatch, path):
    """A network whose class factor is diagonal, and its posterior in a file."""
    monkeypatch.setattr(_last_layer, "FULL", 3)
    monkeypatch.setattr("keras_bdl._laplace._fit_laplace.FULL", 3)
    model, x = network("softmax")
    fit(model, x, refinements=2).save(path)
    return model, x, bdl.posteriors.load(path)


def test_many_classes_have_a_diagonal_class_factor(monkeypatch, tmp_path):
    model, x, posterior = wide(monkeypatch, tmp_path / "p.bdl")
    (block,) = posterior.covariance_blocks()
    assert block.outputs is None and block.shape == (6, 4)
    draws = np.stack(
        [np.vstack(posterior.sample(seed)[2:]) for seed in range(2000)]
    )
    draws = (
        draws.reshape(len(draws), -1) - np.vstack(posterior.mean()[2:]).ravel()
    )
    expected = dense(block)
    stddev = np.sqrt(np.diag(expected))
    error = (draws.T @ draws / len(draws) - expected) / np.outer(stddev, stddev)
    assert np.abs(error).max() < 5 * np.sqrt(2 / len(draws))
    a, s, _ = brute_force(model, x, np.ones(N, "float32"))
    classical = fit(model, x)
    inverse = np.kron(a, np.diag(np.diag(s))) + np.eye(24)
    np.testing.assert_allclose(
        dense(classical.covariance_blocks()[0]),
        np.linalg.inv(inverse),
        atol=1e-5,
    )


def test_a_diagonal_class_factor_is_that_of_backward_passes(
    monkeypatch, tmp_path
):
    model, x, _ = wide(monkeypatch, tmp_path / "p.bdl")
    found = fit(model, x)
    closed_forms(monkeypatch, on=False)
    expected = fit(model, x)
    assert expected.covariance_blocks()[0].outputs is None
    np.testing.assert_allclose(
        *[dense(p.covariance_blocks()[0]) for p in (found, expected)], atol=1e-6
    )


@pytest.mark.parametrize("subset", ["last_layer", "all"])
def test_links_take_a_diagonal_class_factor(subset, monkeypatch, tmp_path):
    model, x, posterior = wide(monkeypatch, tmp_path / "p.bdl")
    if subset == "all":
        posterior = fit(model, x, subset="all")
    options = bdl.prediction.PredictOptions(link="monte_carlo")
    links = bdl.predict(
        model, x, posterior, samples=1000, options=options, verbose=0
    )
    samples = bdl.predict(model, x, posterior, samples=1000, verbose=0)
    np.testing.assert_allclose(links.mean, samples.mean, atol=0.06)


class Scaled(layers.Dense):
    """Not a plain product: the outputs are doubled."""

    def call(self, inputs, training=None):
        return 2.0 * super().call(inputs, training)


def test_other_last_layers_keep_the_backward_passes(monkeypatch):
    found = closed_forms(monkeypatch)
    inputs = keras.Input((3,))
    hidden = layers.Dense(5, "tanh")(inputs)
    z = layers.Dense(4)
    twice = keras.Model(inputs, layers.Dense(4)(z(z(layers.Dense(4)(inputs)))))
    last = {
        "activation": layers.Dense(4, "tanh")(hidden),
        "scaled": 2.0 * layers.Dense(4)(hidden),
        "subclass": Scaled(4)(hidden),
        "reshaped": layers.Reshape((2, 2))(layers.Dense(4)(hidden)),
        "a block behind": layers.LayerNormalization(scale=False, center=False)(
            layers.Dense(4)(hidden)
        ),
    }
    for outputs in last.values():
        model = keras.Model(inputs, outputs)
        model.compile("sgd", NOISE)
        fit(model, VECTORS, fallback=True)
    assert found == [None] * len(last)
    twice.compile("sgd", NOISE)
    fit(twice, VECTORS, subset="all")
    assert found[-1] is None


def test_outputs_that_depend_on_each_other_keep_the_backward_passes(
    monkeypatch,
):
    def two(chained):
        inputs = keras.Input((3,))
        first = layers.Dense(2, name="a")(inputs)
        joined = layers.Concatenate()([inputs, first]) if chained else inputs
        second = layers.Dense(2, name="b")(joined)
        model = keras.Model(inputs, [first, second])
        model.compile("sgd", [NOISE, NOISE])
        return model

    for chained in (True, False):
        with monkeypatch.context() as patch:
            found = closed_forms(patch)
            posterior = fit(two(chained), VECTORS, structure="diagonal")
            assert (found == [None]) == chained
    assert len([h for h in posterior._curvature if h is not None]) == 4


@pytest.mark.parametrize("policy", ["mixed_bfloat16", "mixed_float16"])
def test_a_layer_of_learned_noise_may_compute_in_half_precision(policy):
    stddev = 0.01  # its square is 0.0001, which half precision hardly has
    posteriors = []
    for own in ("float32", policy):
        noise = bdl.likelihoods.LearnedStddev(stddev, dtype=own)
        model = keras.Sequential([keras.Input((3,)), *head(4, None, noise)])
        model.compile("sgd", LEARNED)
        posteriors.append(fit(model, VECTORS))
    ours, full = (dense(p.covariance_blocks()[0]) for p in posteriors)
    np.testing.assert_allclose(ours, full, rtol=0.04, atol=1e-8)


class Warm(layers.Activation):
    def call(self, inputs):
        return super().call(inputs / 3.0)


class WarmSoftmax(layers.Softmax):
    def call(self, inputs, mask=None):
        return super().call(inputs / 3.0, mask)


@pytest.mark.parametrize("last", [lambda: Warm("softmax"), WarmSoftmax])
def test_subclasses_with_their_own_function_have_its_information(
    last,
):
    keras.utils.set_random_seed(1)
    model = keras.Sequential([keras.Input((3,)), layers.Dense(4), last()])
    model.compile("sgd", CLASSES())
    posterior = fit(model, VECTORS)
    weights = model.get_weights()
    plain = keras.Sequential([keras.Input((3,)), layers.Dense(4)])
    plain.set_weights([w / 3.0 for w in weights])
    plain.compile("sgd", CLASSES(True))
    # The logits are a third, and their curvature a ninth.
    of_logits = fit(plain, VECTORS, prior_precision=9.0)
    ours, other = (
        dense(p.covariance_blocks()[0]) for p in (posterior, of_logits)
    )
    np.testing.assert_allclose(ours, 9.0 * other, rtol=1e-3, atol=1e-5)


class Product(layers.Layer):
    """A layer of a user: no activation, and its own name for the weight."""

    def build(self, shape):
        self.w = self.add_weight(shape=(shape[-1], 4))

    def call(self, inputs):
        return inputs @ self.w


@pytest.mark.filterwarnings("ignore:Per-example curvature has no rule")
def test_a_last_layer_of_the_user_is_fitted_without_closed_forms():
    model = keras.Sequential([keras.Input((3,)), Product()])
    model.compile("sgd", CLASSES(True))
    plain = keras.Sequential([keras.Input((3,)), *head(4, None, bias=False)])
    plain.set_weights(model.get_weights())
    plain.compile("sgd", CLASSES(True))
    ours, known = (
        fit(m, VECTORS, structure="diagonal") for m in (model, plain)
    )
    np.testing.assert_allclose(
        *[p.covariance_blocks()[0].values for p in (ours, known)], rtol=1e-5
    )


class Subclass(keras.Model):
    def __init__(self):
        super().__init__()
        self.hidden, self.last = layers.Dense(5, "tanh"), layers.Dense(4)
        self.soft = layers.Activation("softmax", dtype="float32")

    def call(self, x):
        return self.soft(self.last(self.hidden(x)))


@pytest.mark.parametrize("eagerly", [True, False])
def test_models_without_a_graph_have_closed_forms(eagerly, monkeypatch):
    found = closed_forms(monkeypatch)
    model = Subclass()
    model.compile("sgd", CLASSES(), run_eagerly=eagerly)
    posterior = fit(model, VECTORS, refinements=1)
    assert found and None not in found
    monkeypatch.undo()
    closed_forms(monkeypatch, on=False)
    expected = fit(model, VECTORS, refinements=1)
    np.testing.assert_allclose(
        *[dense(p.covariance_blocks()[0]) for p in (posterior, expected)],
        atol=1e-5,
    )


@pytest.mark.parametrize("policy", ["mixed_bfloat16", "mixed_float16"])
def test_half_precision_has_closed_forms(policy, monkeypatch):
    found = closed_forms(monkeypatch)
    before = keras.config.dtype_policy()
    try:
        keras.config.set_dtype_policy(policy)
        model = Subclass()
        model.compile("sgd", CLASSES())
        posterior = fit(model, VECTORS, refinements=1)
    finally:
        keras.config.set_dtype_policy(before)
    assert found and None not in found
    full = Subclass()
    full.compile("sgd", CLASSES())
    full(VECTORS)
    full.set_weights(model.get_weights())
    expected = fit(full, VECTORS, refinements=1)
    np.testing.assert_allclose(
        *[dense(p.covariance_blocks()[0]) for p in (posterior, expected)],
        rtol=0.1,
        atol=0.02,
    )


def test_excluded_bias_stays_in_the_outputs(monkeypatch):
    model, x = network("class logits")
    options = dict(exclude_from_inference="bias", refinements=1)
    found = fit(model, x, **options)
    closed_forms(monkeypatch, on=False)
    expected = fit(model, x, **options)
    np.testing.assert_allclose(
        *[dense(p.covariance_blocks()[0]) for p in (found, expected)], atol=1e-6
    )


def test_replicas_have_the_posterior_of_one_device():
    strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    model, x = network("softmax")
    expected = fit(model, x, refinements=2)
    with strategy.scope():
        other, _ = network("softmax")
    other.set_weights(model.get_weights())
    found = fit(other, x, refinements=2)
    np.testing.assert_allclose(
        *[dense(p.covariance_blocks()[0]) for p in (found, expected)], atol=1e-6
    )


def test_auto_draws_labels_of_many_classes_and_prints_their_error(
    monkeypatch, capsys
):
    model, x = network("softmax")
    x = np.repeat(x, 20, axis=0)
    exact = fit(model, x, subset="all")
    monkeypatch.setattr(_fisher_information, "EXACT_ENTRIES", 3)
    errors, printed = [], []
    for seed in range(3):
        posterior = fit(model, x, subset="all", seed=seed, verbose=2)
        line = [
            one
            for one in capsys.readouterr().out.splitlines()
            if "relative errors" in one
        ]
        assert len(line) == 1 and "drew 32 labels" in line[0]
        low, high = line[0].split("are ")[1].split(" %")[0].split(" to ")
        printed += [(float(low) / 100) ** 2, (float(high) / 100) ** 2]
        errors += [
            relative_error(one, other)
            for one, other in zip(
                posterior._curvatures, exact._curvatures, strict=True
            )
        ]
    ratio = np.sqrt(np.mean(np.square(errors)) / np.mean(printed))
    assert 0.6 < ratio < 1.6
    assert capsys.readouterr().out == ""


def relative_error(one, other):
    """Of the outer factor, in the Frobenius norm."""
    s, t = ((b.outputs * b.values[1]) @ b.outputs.T for b in (one, other))
    return np.linalg.norm(s - t) / np.linalg.norm(t)


def test_auto_is_exact_for_few_entries_and_for_closed_forms(
    monkeypatch, capsys
):
    model, x = network("softmax")
    for subset in ("all", "last_layer"):
        exact = fit(model, x, subset=subset, labels="expected")
        if subset == "last_layer":
            monkeypatch.setattr(_fisher_information, "EXACT_ENTRIES", 3)
        auto = fit(model, x, subset=subset, verbose=2)
        for one, other in zip(
            auto.covariance_blocks(), exact.covariance_blocks(), strict=True
        ):
            np.testing.assert_array_equal(dense(one), dense(other))
    assert "relative errors" not in capsys.readouterr().out
