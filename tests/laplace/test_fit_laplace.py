import keras
import numpy as np
import pytest
import tensorflow as tf
from scipy import optimize
from scipy import stats

import keras_bdl as bdl
from keras_bdl._laplace import fit_laplace
from keras_bdl._laplace._fisher_information import FisherInformation
from keras_bdl.curvature._rules._dense import DenseRule
from keras_bdl.posteriors import Laplace
from keras_bdl.posteriors import Mixture
from keras_bdl.posteriors import load
from keras_bdl.posteriors._gaussian import layout_and_arrays

N, IN = 20, 3
RNG = np.random.default_rng(0)
X = RNG.standard_normal((N, IN)).astype("float32")
NOISE = 0.5


def model_of(units, loss, activation=None, shape=(IN,)):
    """One dense layer, with weights that are not those of a fit."""
    keras.utils.set_random_seed(1)
    model = keras.Sequential(
        [
            keras.Input(shape),
            keras.layers.Dense(
                units, activation=activation, bias_initializer="normal"
            ),
        ]
    )
    model.compile("sgd", loss)
    return model


def covariance(matrix):
    basis = np.kron(matrix.inputs, matrix.outputs).astype("float64")
    return basis * matrix.values.ravel() @ basis.T


def fit(model, data=X, prior_precision=1.0, **kwargs):
    """The classical Laplace approximation of all weights."""
    classical = dict(subset="all", refinements=0, verbose=0)
    return fit_laplace(
        model, data, prior_precision=prior_precision, **classical | kwargs
    )


def diagonal(*args, **kwargs):
    """The diagonal of F, the kernel flat before the bias."""
    posterior = fit(*args, structure="diagonal", **kwargs)
    return np.concatenate([np.ravel(h) for h in posterior._curvature])


def test_kronecker_is_exact_for_a_linear_model_of_one_output():
    model = model_of(1, bdl.likelihoods.Gaussian(NOISE))
    posterior = fit(model, prior_precision=2.0, batch_size=7)
    rows = np.column_stack([X, np.ones(N)]).astype("float64")
    precision = rows.T @ rows / NOISE**2 + 2.0 * np.eye(IN + 1)
    (matrix,) = posterior.matrices
    np.testing.assert_allclose(
        covariance(matrix), np.linalg.inv(precision), rtol=1e-4, atol=1e-7
    )
    for mean, trained in zip(
        posterior.mean(), model.get_weights(), strict=True
    ):
        np.testing.assert_array_equal(mean, trained)


def test_diagonal_is_the_closed_form_of_logistic_regression():
    model = model_of(1, "binary_crossentropy", "sigmoid")
    posterior = fit(model, prior_precision=3.0, structure="diagonal")
    p = model.predict(X, verbose=0)
    fisher = np.sum(p * (1 - p) * X**2, axis=0)[:, None]
    draws = np.stack([posterior.sample(seed)[0] for seed in range(4000)])
    variance = 1.0 / (fisher + 3.0)
    error = variance * np.sqrt(2 / len(draws))
    assert (np.abs(draws.var(0) - variance) < 5 * error).all()
    np.testing.assert_allclose(posterior._curvature[0], fisher, rtol=1e-5)


def sparse(**kwargs):
    return keras.losses.SparseCategoricalCrossentropy(**kwargs)


def binary(**kwargs):
    return keras.losses.BinaryCrossentropy(**kwargs)


CLASSES = np.arange(N) % 3
BITS = RNG.integers(0, 2, (N, 3)).astype("float32")
REALS = RNG.standard_normal((N, 3)).astype("float32")
SEQUENCES = RNG.standard_normal((N, 5, IN)).astype("float32")
# Loss, activation, labels, inputs.
LINEAR = {
    "class logits": (sparse(from_logits=True), None, CLASSES, X),
    "class probabilities": (sparse(), "softmax", CLASSES, X),
    "one-hot labels": (
        keras.losses.CategoricalCrossentropy(True, label_smoothing=0.1),
        None,
        np.eye(3, dtype="float32")[CLASSES],
        X,
    ),
    "bit logits": (binary(from_logits=True), None, BITS, X),
    "bit probabilities": ("binary_crossentropy", "sigmoid", BITS, X),
    "means": (bdl.likelihoods.Gaussian(NOISE), None, REALS, X),
    "sequence of classes": (
        sparse(from_logits=True),
        None,
        RNG.integers(0, 3, (N, 5)),
        SEQUENCES,
    ),
    "sequence of bits": (
        binary(),
        "sigmoid",
        RNG.integers(0, 2, (N, 5, 3)).astype("float32"),
        SEQUENCES,
    ),
    "sequence of means": (
        bdl.likelihoods.Gaussian(NOISE),
        None,
        RNG.standard_normal((N, 5, 3)).astype("float32"),
        SEQUENCES,
    ),
}


def labels_of(case):
    """The number of labels that Keras averages; their likelihood is a product.

    Every other case is a sum over its last axis.
    """
    return {"bit logits": 3, "bit probabilities": 3, "sequence of bits": 3}.get(
        case, 1
    )


def hessian_of_loss(model, x, y):
    """Of N times the compiled loss, by autodiff."""
    variables = [v.value for v in model.trainable_variables]
    with tf.GradientTape(persistent=True) as outer:
        with tf.GradientTape() as inner:
            loss = len(x) * model.compute_loss(x, y, model(x))
        gradients = inner.gradient(loss, variables)
        flat = tf.concat([tf.reshape(g, [-1]) for g in gradients], axis=0)
    rows = outer.jacobian(flat, variables)
    return np.concatenate(
        [np.reshape(r, (flat.shape[0], -1)) for r in rows], axis=1
    )


@pytest.mark.parametrize("case", LINEAR)
def test_the_expectation_over_labels_is_the_hessian_of_a_linear_model(case):
    loss, activation, y, x = LINEAR[case]
    model = model_of(3, loss, activation, x.shape[1:])
    hessian = np.diag(hessian_of_loss(model, x, y))
    np.testing.assert_allclose(
        diagonal(model, x, batch_size=8), labels_of(case) * hessian, rtol=1e-4
    )


@pytest.mark.parametrize("case", LINEAR)
def test_log_likelihood_is_that_of_the_weighted_loss(case):
    loss, activation, y, x = LINEAR[case]
    model = model_of(3, loss, activation, x.shape[1:])
    weight = np.arange(N, dtype="float32") % 3
    rows = np.repeat(np.arange(N), weight.astype(int))
    posterior = fit(model, (x, y, weight), batch_size=8)
    observations = labels_of(case) * len(rows)
    expected = -observations * model.evaluate(x[rows], y[rows], verbose=0)
    np.testing.assert_allclose(
        posterior.log_marginal_likelihood - posterior.evidence(1.0),
        expected,
        rtol=1e-4,
    )


@pytest.mark.parametrize("case", [*LINEAR, "means and stddevs"])
def test_drawn_labels_have_the_expectation_for_their_mean(case):
    loss, activation, _, x = LINEAR.get(
        case,
        (
            bdl.likelihoods.Gaussian(),
            bdl.likelihoods.mean_and_stddev,
            None,
            X,
        ),
    )
    # Many copies of one example, whose labels are drawn independently.
    copies, draws = 2000, 20
    x = np.repeat(x[:1], copies, axis=0)
    model = model_of(4, loss, activation, x.shape[1:])
    expected = diagonal(model, x, batch_size=copies)
    # Of the squared scores, the last case has the largest relative variance,
    # E(z^2 - 1)^4 / 4 - 1 = 14.
    error = expected * np.sqrt(14 / (copies * draws))
    found = [
        diagonal(
            model,
            x,
            batch_size=copies,
            labels="drawn",
            label_samples=draws,
            seed=seed,
        )
        for seed in range(2)
    ]
    assert (found[0] != found[1]).any()
    for squares in found:
        assert (np.abs(squares - expected) < 5 * error).all()


def network(loss, activation):
    keras.utils.set_random_seed(1)
    layers = keras.layers
    model = keras.Sequential(
        [
            keras.Input((6, 6, 2)),
            layers.Conv2D(3, 3, strides=2, activation="tanh"),
            layers.BatchNormalization(),
            layers.Flatten(),
            layers.Dense(4, activation="tanh"),
            layers.Dropout(0.5),
            layers.Dense(4, activation=activation),
        ]
    )
    model.compile("sgd", loss)
    statistics = model.layers[1]
    statistics.moving_mean.assign([0.1, -0.2, 0.3])
    statistics.moving_variance.assign([0.5, 1.0, 2.0])
    return model


def shared(loss, activation):
    """A network that calls one of its layers twice."""
    keras.utils.set_random_seed(1)
    layers = keras.layers
    twice = layers.Dense(5, activation="tanh")
    x = inputs = keras.Input((6, 6, 2))
    for layer in (layers.Flatten(), layers.Dense(5), twice, twice):
        x = layer(x)
    outputs = layers.Dense(4, activation=activation)(x)
    model = keras.Model(inputs, outputs)
    model.compile("sgd", loss)
    return model


IMAGES = RNG.standard_normal((6, 6, 6, 2)).astype("float32")


def gradients_of_labels(model, x, y):
    """Of each example, by autodiff of the loss."""
    for i in range(len(x)):
        with tf.GradientTape() as tape:
            y_pred = model(x[i : i + 1], training=False)
            loss = model.compute_loss(x[i : i + 1], y[i : i + 1], y_pred)
        yield tape.gradient(loss, [v.value for v in model.trainable_variables])


@pytest.mark.parametrize("make", [network, shared])
def test_diagonal_of_a_classifier_is_that_of_all_labels_in_turn(make):
    model = make("sparse_categorical_crossentropy", "softmax")
    p = model.predict(IMAGES, verbose=0)
    weight = np.array([1.0, 0.0, 2.0, 0.5, 3.0, 1.0], "float32")
    expected = [0.0] * len(model.trainable_variables)
    for label in range(4):
        y = np.full(len(IMAGES), label)
        for i, g in enumerate(gradients_of_labels(model, IMAGES, y)):
            expected = [
                total + weight[i] * p[i, label] * np.square(part)
                for total, part in zip(expected, g, strict=True)
            ]
    found = fit(
        model,
        (IMAGES, None, weight),
        structure="diagonal",
        exclude_from_inference=(),
        batch_size=4,
    )._curvature
    for h, e in zip(found, expected, strict=True):
        np.testing.assert_allclose(h, e, rtol=1e-4, atol=1e-5 * np.max(e))


def test_diagonal_of_predicted_noise_is_that_of_a_quadrature_of_targets():
    model = network(bdl.likelihoods.Gaussian(), bdl.likelihoods.mean_and_stddev)
    mean, stddev = np.split(model.predict(IMAGES, verbose=0), 2, axis=-1)
    expected = 0.0
    # Exact up to the fifth power of z, for each of the two targets.
    points = [(0.0, 2 / 3), (np.sqrt(3.0), 1 / 6), (-np.sqrt(3.0), 1 / 6)]
    for z1, p1 in points:
        for z2, p2 in points:
            y = (mean + stddev * [z1, z2]).astype("float32")
            gradients = gradients_of_labels(model, IMAGES, y)
            expected += p1 * p2 * sum(np.square(g[-2]) for g in gradients)
    found = fit(model, IMAGES, structure="diagonal")._curvature[-2]
    np.testing.assert_allclose(found, expected, rtol=1e-4)


@pytest.mark.parametrize("structure", ["kronecker", "diagonal"])
def test_unequal_batches_and_weights_are_one_batch_of_copies(structure):
    model = network("sparse_categorical_crossentropy", "softmax")
    weight = np.array([1, 2, 1, 3, 1, 1], "float32")
    rows = np.repeat(np.arange(6), weight.astype(int))
    copies = fit(model, IMAGES[rows], structure=structure)
    batches = tf.data.Dataset.from_tensor_slices(
        (IMAGES, np.zeros(6), weight)
    ).batch(4)
    weighted = fit(model, batches, structure=structure)
    for a, b in zip(arrays_of(copies), arrays_of(weighted), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5 * np.max(a))


def arrays_of(posterior):
    """All of F."""
    arrays = [h for h in posterior._curvature if h is not None]
    for c in posterior._curvatures:
        factors = [
            (c.inputs * c.values[0]) @ c.inputs.T,
            (c.outputs * c.values[1]) @ c.outputs.T,
        ]
        arrays.append(np.kron(*factors))
    return arrays


@pytest.mark.parametrize("make", [network, shared])
def test_factors_are_those_of_all_labels_in_turn(make):
    model = make("sparse_categorical_crossentropy", "softmax")
    p = model.predict(IMAGES, verbose=0)
    expected = {}
    for label in range(4):
        y = np.full(len(IMAGES), label)
        # The weights of the examples are divided out of A, and not of S.
        for f in bdl.curvature.kronecker_factors(
            model, (IMAGES, y, p[:, label]), training=False
        ):
            totals = expected.setdefault(f.kernel.path, [0.0, 0.0])
            totals[0] += p[:, label].mean() * np.asarray(f.inputs)
            totals[1] += len(IMAGES) * np.asarray(f.outputs)
    posterior = fit(model, IMAGES)
    for c, e in zip(arrays_of(posterior), expected.values(), strict=True):
        np.testing.assert_allclose(
            c, np.kron(*e), rtol=1e-3, atol=1e-5 * c.max()
        )


ROWS = np.column_stack([X, np.ones(N)]).astype("float64")
TARGETS = X @ [1.0, -0.5, 0.2] + 0.3 + NOISE * RNG.standard_normal(N)


def exact_evidence(delta):
    """Of Bayesian linear regression."""
    total = NOISE**2 * np.eye(N) + ROWS @ ROWS.T / delta
    return stats.multivariate_normal(cov=total).logpdf(TARGETS)


def regression_at_maximum(delta):
    """A model at the maximum of its posterior."""
    model = model_of(1, bdl.likelihoods.Gaussian(NOISE))
    precision = ROWS.T @ ROWS / NOISE**2 + delta * np.eye(IN + 1)
    weights = np.linalg.solve(precision, ROWS.T @ TARGETS / NOISE**2)
    model.set_weights([weights[:-1, None], weights[-1:]])
    return model


@pytest.mark.parametrize("delta", [0.1, 1.0, 30.0])
def test_evidence_of_linear_regression_is_exact(delta):
    posterior = fit(
        regression_at_maximum(delta), (X, TARGETS), prior_precision=delta
    )
    np.testing.assert_allclose(
        posterior.log_marginal_likelihood, exact_evidence(delta), rtol=1e-5
    )


@pytest.mark.parametrize("name", ["marginal_likelihood", "evidence"])
def test_marginal_likelihood_recovers_the_best_prior(name):
    best = np.exp(
        optimize.minimize_scalar(
            lambda log_delta: -exact_evidence(np.exp(log_delta)),
            bounds=(-5, 5),
            method="bounded",
            options={"xatol": 1e-8},
        ).x
    )
    posterior = fit(regression_at_maximum(best), X, prior_precision=name)
    np.testing.assert_allclose(posterior.prior_precision, best, rtol=1e-4)


@pytest.mark.parametrize("structure", ["kronecker", "diagonal"])
def test_marginal_likelihood_is_the_maximum_over_prior_precisions(structure):
    model = network("sparse_categorical_crossentropy", "softmax")
    posterior = fit(
        model,
        IMAGES,
        structure=structure,
        temperature=0.5,
        prior_precision="marginal_likelihood",
    )
    others = posterior.prior_precision * np.array([0.5, 0.99, 1.01, 2.0])
    for delta in others:
        other = posterior.with_prior_precision(delta)
        assert other.log_marginal_likelihood < posterior.log_marginal_likelihood


@pytest.mark.parametrize("structure", ["kronecker", "diagonal"])
def test_each_layer_can_have_the_precision_of_its_own_evidence(
    structure, tmp_path
):
    posterior = fit(
        network("sparse_categorical_crossentropy", "softmax"),
        IMAGES,
        structure=structure,
        prior_precision="evidence_per_layer",
    )
    deltas = posterior.prior_precision
    of_layers = set(deltas) - {1.0}  # 1 is that of BatchNorm, without effect
    assert len(of_layers) == 3
    for delta in of_layers:
        for factor in (0.9, 1.1):
            others = [d * factor if d == delta else d for d in deltas]
            other = posterior.with_prior_precision(others)
            best = posterior.log_marginal_likelihood
            assert other.log_marginal_likelihood < best
    posterior.save(tmp_path / "posterior")
    loaded = bdl.posteriors.load(tmp_path / "posterior")
    assert loaded.prior_precision == deltas
    for one, same in zip(posterior.sample(3), loaded.sample(3), strict=True):
        np.testing.assert_array_equal(one, same)


def test_temperature_and_size_of_the_data_are_factors_of_the_curvature():
    model = network("sparse_categorical_crossentropy", "softmax")
    labels = np.arange(6) % 4
    cold = fit(model, (IMAGES, labels), temperature=0.5)
    large = fit(model, (IMAGES, labels), dataset_size=12)
    for a, b in zip(cold.matrices, large.matrices, strict=True):
        np.testing.assert_allclose(a.values, b.values, rtol=1e-5)
    np.testing.assert_allclose(
        cold.log_marginal_likelihood, large.log_marginal_likelihood, rtol=1e-5
    )


def test_examples_that_a_pipeline_repeats_count_once():
    model = model_of(1, bdl.likelihoods.Gaussian(NOISE))
    batches = tf.data.Dataset.from_tensor_slices(X).batch(8)
    once = diagonal(model, batches)
    for data in (batches.repeat(3), batches.map(lambda x: x).repeat(3)):
        np.testing.assert_allclose(diagonal(model, data), once, rtol=1e-5)
    unknown = tf.data.Dataset.from_generator(
        lambda: iter([X]), output_signature=tf.TensorSpec((None, IN))
    )
    with pytest.warns(UserWarning, match="Leave out `.repeat"):
        diagonal(model, unknown.repeat(3))


def test_last_layer_alone_is_uncertain():
    model = network("sparse_categorical_crossentropy", "softmax")
    posterior = fit(model, IMAGES, subset="last_layer")
    draw = posterior.sample(0)
    for i, (w, trained) in enumerate(
        zip(draw, model.trainable_variables, strict=True)
    ):
        assert (w == trained.numpy()).all() == (i < 6)
    whole = fit(model, IMAGES)
    np.testing.assert_allclose(
        posterior.matrices[-1].values, whole.matrices[-1].values, rtol=1e-5
    )


def recurrent():
    model = keras.Sequential(
        [keras.Input((4, 2)), keras.layers.SimpleRNN(3), keras.layers.Dense(3)]
    )
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile("sgd", loss)
    rng = np.random.default_rng(0)
    x = rng.normal(size=(12, 4, 2)).astype("float32")
    return model, (x, rng.integers(0, 3, 12))


def test_refinements_go_through_a_recurrent_layer():
    model, data = recurrent()
    first, second = (
        bdl.fit_laplace(
            model,
            data,
            subset="all",
            fallback=True,
            refinements=refinements,
            prior_precision=1.0,
            verbose=0,
        )
        for refinements in (0, 1)
    )
    blocks = [
        layout_and_arrays(p.covariance_blocks())[1] for p in (first, second)
    ]
    for before, after in zip(*blocks, strict=True):
        assert np.all(np.isfinite(after))
        assert before.shape == after.shape
    assert any(np.any(a != b) for a, b in zip(*blocks, strict=True))


def test_memory_holds_the_sums_of_one_pass(monkeypatch):
    kept = []
    sums = FisherInformation._sums

    def recorded(information, *args):
        kept.append(len(information.matrices))
        return sums(information, *args)

    monkeypatch.setattr(FisherInformation, "_sums", recorded)
    model, data = recurrent()
    bdl.fit_laplace(model, data, refinements=2, labels="drawn", verbose=0)
    assert len(kept) >= 3 and not any(kept)


def test_layers_without_uncertainty_need_no_rule():
    model = keras.Sequential(
        [
            keras.Input((5, IN)),
            keras.layers.LSTM(4),
            keras.layers.Dense(2),
            bdl.likelihoods.LearnedStddev(0.7),
        ]
    )
    model.compile("sgd", bdl.likelihoods.Gaussian())
    posterior = fit(model, SEQUENCES, subset="last_layer")
    assert [m.variables for m in posterior.matrices] == [[3, 4]]
    with pytest.raises(ValueError, match="no rule for `LSTM`"):
        fit(model, SEQUENCES, fallback=False)


def test_excluded_variables_have_no_variance():
    model = network("sparse_categorical_crossentropy", "softmax")
    posterior = fit(model, IMAGES)
    assert [m.variables for m in posterior.matrices] == [[0, 1], [4, 5], [6, 7]]
    posterior = fit(model, IMAGES, exclude_from_inference=("bias", "gamma"))
    mean = posterior.mean()
    varies = [
        np.any(w != m) for w, m in zip(posterior.sample(0), mean, strict=True)
    ]
    assert varies == [True, False, False, True, True, False, True, False]
    np.testing.assert_allclose(
        posterior.evidence._square_norm,
        sum(
            np.square(v.numpy()).sum()
            for v in model.trainable_variables
            if v.name in ("kernel", "beta")
        ),
        rtol=1e-6,
    )


def test_predictions_of_a_mixture_from_a_file_are_equal(tmp_path):
    model = network("sparse_categorical_crossentropy", "softmax")
    trained = model.get_weights()
    posterior = fit(model, (IMAGES, np.zeros(6))).with_scale(0.7)
    Mixture([posterior, posterior]).save(tmp_path / "p.bdl")
    loaded = load(tmp_path / "p.bdl").components[0]
    assert repr(loaded) == repr(posterior)
    assert loaded.log_marginal_likelihood == posterior.log_marginal_likelihood
    predictions = [
        bdl.predict(model, IMAGES, p, verbose=0) for p in (posterior, loaded)
    ]
    assert predictions[0].num_samples == 30
    np.testing.assert_array_equal(*[p.mean for p in predictions])
    assert predictions[0].mutual_information.min() > 0
    for a, b in zip(trained, model.get_weights(), strict=True):
        np.testing.assert_array_equal(a, b)


def test_validation_takes_the_prior_with_the_best_predictions(monkeypatch):
    candidates = np.array([0.01, 1.0, 100.0, 1e4])
    module = "keras_bdl._laplace._fit_laplace.CANDIDATES"
    monkeypatch.setattr(module, candidates)
    model = model_of(1, "mse")
    model.set_weights(regression_at_maximum(1.0).get_weights())
    likelihood = bdl.likelihoods.Gaussian(NOISE)
    held_out = (X[:8], TARGETS[:8, None] + 0.1)
    kwargs = {
        "loss": likelihood,
        "prior_precision": "validation",
        "validation_data": held_out,
    }
    posterior = fit(model, X, **kwargs)

    def log_likelihood(delta):
        prediction = bdl.predict(
            model,
            held_out[0],
            posterior.with_prior_precision(delta),
            options=bdl.prediction.PredictOptions(moments=likelihood.moments),
            keep_samples=True,
            verbose=0,
        )
        return bdl.evaluate(prediction, held_out[1]).log_likelihood

    best = candidates[np.argmax([log_likelihood(d) for d in candidates])]
    assert posterior.prior_precision == best
    monkeypatch.setattr(module, candidates[candidates >= best])
    with pytest.warns(UserWarning, match="at the end of the search range"):
        fit(model, X, **kwargs)


def test_uncompiled_model_takes_the_argument_loss():
    compiled = model_of(3, sparse(from_logits=True))
    bare = keras.Sequential(compiled.layers)
    expected = fit(compiled, (X, CLASSES)).log_marginal_likelihood
    found = fit(bare, (X, CLASSES), loss=sparse(from_logits=True))
    assert found.log_marginal_likelihood == expected


def test_all_batches_are_one_trace():
    calls = []

    class Counted(keras.layers.Dense):
        def call(self, inputs, training=None):
            calls.append(inputs.shape)
            return super().call(inputs, training)

    bdl.extend.register_rule(Counted)(DenseRule)
    model = keras.Sequential([keras.Input((IN,)), Counted(3)])
    model.compile("sgd", sparse(from_logits=True))
    calls.clear()
    fit(model, X, batch_size=8)
    assert len(calls) == 1


@pytest.mark.parametrize("eagerly", [True, False])
def test_eager_and_compiled_fits_agree(eagerly):
    model = network("sparse_categorical_crossentropy", "softmax")
    expected = arrays_of(fit(model, IMAGES))
    model.compile(
        "sgd", model.loss, run_eagerly=eagerly, jit_compile=not eagerly
    )
    for a, b in zip(arrays_of(fit(model, IMAGES)), expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-5 * np.max(b))


@pytest.mark.parametrize(
    ("kwargs", "match"),
    [
        ({"loss": "mse"}, "`loss` must be a negative log-likelihood.*mse"),
        ({"loss": "binary_focal_crossentropy"}, "negative log-likelihood"),
        ({"loss": sparse(ignore_class=0)}, "must not ignore a class"),
        ({"loss": ["bce", "bce"]}, "one for each output"),
        ({"loss": binary(reduction="sum")}, "mean over the batch"),
        ({"structure": "full"}, "`structure` must be one of.*'full'"),
        ({"subset": "first"}, "`subset` must be one of.*'first'"),
        ({"labels": "true"}, "`labels` must be one of.*'true'"),
        ({"labels": "drawn", "label_samples": 0}, "`label_samples` must"),
        (
            {"prior_precision": 0.0},
            "`prior_precision` must be a number above 0",
        ),
        ({"prior_precision": "best"}, "`prior_precision` must be one of"),
        ({"prior_precision": "validation"}, "`validation_data` must be given"),
        ({"validation_data": (X, X)}, "`validation_data` must be given"),
        ({"temperature": -1.0}, "`temperature` must be a number above 0"),
        ({"dataset_size": 0}, "`dataset_size` must be a positive integer"),
        ({"exclude_from_inference": "dens"}, "Received: .'dens'."),
        (
            {"exclude_from_inference": "Dense"},
            "outside of `exclude_from_inference`",
        ),
        ({"data": (X, None, -np.ones(N))}, "negative sample weights"),
        (
            {"data": (X, None, np.ones((N, 2)))},
            "one sample weight for each example",
        ),
        ({"data": X * np.nan}, "must not contain NaN"),
    ],
)
def test_wrong_arguments_are_refused(kwargs, match):
    model = model_of(1, binary(from_logits=True))
    with pytest.raises(ValueError, match=match):
        fit(model, **{"data": X, **kwargs})


def test_labels_outside_of_the_classes_are_refused():
    model = model_of(3, sparse(from_logits=True))
    with pytest.raises(ValueError, match=r"in \[0, 3\).*a label 7"):
        fit(model, data=(X, np.full(N, 7)))


@pytest.mark.parametrize("labels", ["expected", "drawn"])
@pytest.mark.parametrize("loss", [sparse(), binary()], ids=["class", "binary"])
def test_logits_declared_as_probabilities_are_refused(loss, labels):
    with pytest.raises(ValueError, match="`from_logits` of the loss is right"):
        fit(model_of(3, loss), labels=labels)


@pytest.mark.parametrize(
    ("curvature", "matrices", "match"),
    [
        ([-np.ones(2)], [], r"not be negative. Received: -1.0 in curvature"),
        ([np.ones(3)], [], r"of shape \(3,\), expected \(2,\)"),
        ([], [], "one array for each array of `mean`. Received: 0 for 1"),
        ([None], [np.ones(2)], r"matrices\[0\] of type ndarray"),
    ],
)
def test_wrong_curvatures_are_refused(curvature, matrices, match):
    with pytest.raises(ValueError, match=match):
        Laplace([np.zeros(2)], curvature, matrices, prior_precision=1.0)


def test_refinements_end_at_the_fixed_point_of_logistic_regression():
    """One weight: quadrature gives the average curvature exactly."""
    x = np.ones((1500, 1), "float32")
    model = keras.Sequential(
        [keras.Input((1,)), keras.layers.Dense(1, use_bias=False)]
    )
    loss = keras.losses.BinaryCrossentropy(from_logits=True)
    model.compile("sgd", loss)
    model.set_weights([np.array([[9.0]])])  # saturated for all inputs
    for structure in ("diagonal", "kronecker"):
        posterior = fit(
            model,
            x,
            prior_precision=0.3,
            structure=structure,
            refinements=5,
            batch_size=4,  # each with a sample of its own
        )
        nodes, mass = np.polynomial.hermite_e.hermegauss(60)
        variance = 1.0
        for _ in range(100):
            logits = x * (9.0 + np.sqrt(variance) * nodes)
            p = 1.0 / (1.0 + np.exp(-logits))
            average = p * (1.0 - p) @ mass / mass.sum()
            variance = 1.0 / (0.3 + np.sum(average * x[:, 0] ** 2))
        covariances = posterior.matrices
        found = covariances[0].values if covariances else posterior._variance[0]
        np.testing.assert_allclose(found, variance, rtol=0.1)
    classical = fit(model, x, prior_precision=0.3, structure="diagonal")
    assert classical._variance[0] > 1.3 * variance


@pytest.mark.parametrize("activation", [None, "softmax"])
def test_refined_curvature_is_the_same_for_logits_and_probabilities(activation):
    loss = keras.losses.SparseCategoricalCrossentropy(activation is None)
    model = model_of(3, loss, activation)
    reference = model_of(3, keras.losses.SparseCategoricalCrossentropy(True))
    reference.set_weights(model.get_weights())
    found, expected = (
        fit(m, refinements=2, structure="diagonal", batch_size=5)
        for m in (model, reference)
    )
    for a, b in zip(found._curvature, expected._curvature, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-3)


def test_prior_of_the_weights_is_their_mean_square():
    model = model_of(2, keras.losses.BinaryCrossentropy(from_logits=True))
    posterior = fit(model, prior_precision="weights")
    squares = np.concatenate([np.ravel(w) ** 2 for w in model.get_weights()])
    assert posterior.prior_precision == pytest.approx(1.0 / squares.mean())


def test_factors_that_do_not_fit_into_memory_are_refused(monkeypatch):
    monkeypatch.setattr("keras_bdl._memory.free_bytes", lambda: 100)
    with pytest.raises(
        ValueError, match="must fit into memory.*100 bytes free"
    ):
        fit(model_of(2, keras.losses.BinaryCrossentropy(from_logits=True)))


def test_memory_counts_the_factors_of_attention(monkeypatch):
    inputs = keras.Input((4, 6))
    x = keras.layers.MultiHeadAttention(2, 3, use_bias=False)(inputs, inputs)
    model = keras.Model(inputs, keras.layers.Flatten()(x))
    model.compile("sgd", keras.losses.BinaryCrossentropy(from_logits=True))
    monkeypatch.setattr("keras_bdl._memory.free_bytes", lambda: 100)
    # Three matrices (6, 6), and one with heads and sizes swapped: two factors
    # each, and a sample.
    entries = 4 * 3 * 6**2
    with pytest.raises(ValueError, match=f"{16 * entries} bytes needed"):
        fit(model, subset="all")
