import keras
import numpy as np
import pytest
import tensorflow as tf

import keras_bdl as bdl
from keras_bdl.posteriors import Laplace

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
    return basis * matrix.variance.ravel() @ basis.T


def fit(model, data=X, prior_precision=1.0, **kwargs):
    return Laplace.fit(
        model, data, prior_precision=prior_precision, verbose=0, **kwargs
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
        diagonal(model, x, batch_size=8), hessian, rtol=1e-4
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
            label_draws=draws,
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


IMAGES = RNG.standard_normal((6, 6, 6, 2)).astype("float32")


def gradients_of_labels(model, x, y):
    """Of each example, by autodiff of the loss."""
    for i in range(len(x)):
        with tf.GradientTape() as tape:
            y_pred = model(x[i : i + 1], training=False)
            loss = model.compute_loss(x[i : i + 1], y[i : i + 1], y_pred)
        yield tape.gradient(loss, [v.value for v in model.trainable_variables])


def test_diagonal_of_a_classifier_is_that_of_all_labels_in_turn():
    model = network("sparse_categorical_crossentropy", "softmax")
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
            (c.inputs * c.input_values) @ c.inputs.T,
            (c.outputs * c.output_values) @ c.outputs.T,
        ]
        arrays.append(np.kron(*factors))
    return arrays


def test_factors_are_those_of_all_labels_in_turn():
    model = network("sparse_categorical_crossentropy", "softmax")
    p = model.predict(IMAGES, verbose=0)
    expected = {}
    for label in range(4):
        y = np.full(len(IMAGES), label)
        # Half the examples at a time, of which the weights are a part of S.
        for f in bdl.curvature.kronecker_factors(
            model, IMAGES, y, p[:, label], training=False
        ):
            totals = expected.setdefault(f.kernel.path, [0.0, 0.0])
            totals[0] += p[:, label].mean() * np.asarray(f.inputs)
            totals[1] += len(IMAGES) * np.asarray(f.outputs)
    posterior = fit(model, IMAGES)
    for c, e in zip(arrays_of(posterior), expected.values(), strict=True):
        np.testing.assert_allclose(
            c, np.kron(*e), rtol=1e-3, atol=1e-5 * c.max()
        )
    assert [m.variables for m in posterior.matrices] == [[0, 1], [4, 5], [6, 7]]
