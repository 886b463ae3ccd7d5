"""Linearised predictions equal `f(x, m) + J (w - m)` by brute force."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from scipy import special
from sklearn.linear_model import BayesianRidge

import keras_bdl as bdl
from keras_bdl.posteriors import Ensemble
from keras_bdl.posteriors import Gaussian
from keras_bdl.posteriors import Layerwise
from keras_bdl.posteriors import MCDropout
from keras_bdl.posteriors._gaussian import layout_and_arrays
from keras_bdl.prediction import _links as output_gaussian
from tests.helpers import predict_arguments

RNG = np.random.default_rng(0)
X = RNG.normal(size=(6, 3)).astype("float32")


def network(activation=None, units=3):
    model = keras.Sequential(
        [
            keras.Input((3,)),
            keras.layers.Dense(4, "tanh"),
            keras.layers.BatchNormalization(),
            keras.layers.Dense(units, activation),
        ]
    )
    return model


def gaussian(model, stddev=0.5):
    mean = [np.array(v) + 0.1 for v in model.trainable_variables]
    return Gaussian(mean, [np.full(m.shape, stddev**2) for m in mean])


def jacobian(model, means, of):
    """Returns `of(f)` at the means, and its Jacobian for each variable."""
    for variable, mean in zip(model.trainable_variables, means, strict=True):
        variable.assign(mean)
    with tf.GradientTape() as tape:
        outputs = of(model(X, training=False))
    variables = [v.value for v in model.trainable_variables]
    found = tape.jacobian(outputs, variables)
    shape = outputs.shape
    rows = [np.reshape(j, (*shape, -1)) for j in found]
    return outputs.numpy(), np.concatenate(rows, -1)


def log_odds(p):
    return tf.math.log(p) - tf.math.log1p(-p)


CASES = {
    "logits": (None, 3, "classification", True, tf.identity, special.softmax),
    "softmax": (
        "softmax",
        3,
        "classification",
        False,
        tf.math.log,
        special.softmax,
    ),
    "sigmoid": ("sigmoid", 1, "binary", False, log_odds, None),
    "regression": (None, 2, "regression", None, tf.identity, None),
}


@pytest.mark.filterwarnings("ignore:.*BatchNorm statistics")
@pytest.mark.parametrize("case", CASES)
def test_each_sample_is_that_of_the_jacobian(case):
    activation, units, task, from_logits, of, _ = CASES[case]
    model = network(activation, units)
    posterior = gaussian(model)
    p = bdl.predict(
        model,
        X,
        posterior,
        samples=3,
        options=bdl.prediction.PredictOptions(
            linearized=True, task=task, from_logits=from_logits
        ),
        keep_samples=True,
        verbose=0,
    )
    center, derivative = jacobian(model, posterior.mean(), of)
    mean = np.concatenate([np.ravel(m) for m in posterior.mean()])
    for sample, seed in zip(p.samples, posterior.seeds(0, 3), strict=True):
        w = np.concatenate([np.ravel(a) for a in posterior.sample(seed)])
        linear = center + derivative @ (w - mean)
        if task == "classification":
            linear = special.softmax(linear, axis=-1)
        elif task == "binary":
            odds = special.expit(linear)
            linear = np.concatenate([1 - odds, odds], -1)
        np.testing.assert_allclose(sample, linear, 1e-4, 1e-5)


def test_pooling_is_linearised_at_the_maximum():
    layers = keras.layers
    model = keras.Sequential(
        [
            keras.Input((10, 10, 1)),
            layers.Conv2D(3, 3, activation="relu"),
            layers.MaxPooling2D(2),
            layers.MaxPooling2D(2, strides=1, padding="same"),
            layers.Reshape((16, 3)),
            layers.MaxPooling1D(3, strides=4),
            layers.Flatten(),
            layers.Dense(2),
        ]
    )
    x = RNG.normal(size=(4, 10, 10, 1)).astype("float32")
    posterior = gaussian(model)
    p = bdl.predict(
        model,
        x,
        posterior,
        samples=3,
        options=bdl.prediction.PredictOptions(
            linearized=True, task="regression"
        ),
        keep_samples=True,
        verbose=0,
    )
    mean = posterior.mean()
    for variable, value in zip(model.trainable_variables, mean, strict=True):
        variable.assign(value)
    with tf.GradientTape() as tape:
        outputs = model(x, training=False)
    variables = [v.value for v in model.trainable_variables]
    rows = [
        np.reshape(j, (4, 2, -1)) for j in tape.jacobian(outputs, variables)
    ]
    for sample, seed in zip(p.samples, posterior.seeds(0, 3), strict=True):
        pairs = zip(posterior.sample(seed), mean, strict=True)
        deviation = np.concatenate([np.ravel(w - m) for w, m in pairs])
        linear = outputs + np.concatenate(rows, -1) @ deviation
        np.testing.assert_allclose(sample, linear, 1e-4, 1e-4)


def test_pooling_ignores_entries_of_minus_infinity():
    layers = keras.layers
    rows = tf.range(8)[:, None, None]
    model = keras.Sequential(
        [
            keras.Input((8, 1, 1)),
            layers.Conv2D(2, 1),
            layers.Lambda(lambda x: tf.where(rows % 2 == 0, x, -np.inf)),
            layers.MaxPooling2D((2, 1)),
            layers.Flatten(),
        ]
    )
    x = RNG.normal(size=(4, 8, 1, 1)).astype("float32")
    sampled, linear = (
        bdl.predict(
            model,
            x,
            gaussian(model),
            samples=3,
            options=bdl.prediction.PredictOptions(
                task="regression", linearized=linearized
            ),
            keep_samples=True,
            verbose=0,
        ).samples
        for linearized in (False, True)
    )
    # The network is linear in its weights, apart from the maximum.
    np.testing.assert_allclose(linear, sampled, 1e-5, 1e-6)


def test_linear_regression_is_exact():
    """`BayesianRidge` has the posterior in closed form."""
    x = RNG.normal(size=(40, 3)).astype("float32")
    y = x @ [1.0, -2.0, 0.5] + 0.3 * RNG.normal(size=40)
    ridge = BayesianRidge(
        alpha_init=1 / 0.3**2, lambda_init=2.0, max_iter=1, fit_intercept=False
    )
    ridge.fit(x, y)
    loss = bdl.likelihoods.Gaussian(noise_stddev=float(ridge.alpha_**-0.5))
    model = keras.Sequential(
        [keras.Input((3,)), keras.layers.Dense(1, use_bias=False)]
    )
    model.compile("sgd", loss)
    model.set_weights([ridge.coef_[:, None]])
    posterior = bdl.fit_laplace(
        model, x, prior_precision=float(ridge.lambda_), verbose=0
    )
    p = bdl.predict(model, X, posterior, samples=4000, verbose=0)
    mean, stddev = ridge.predict(X, return_std=True)
    error = 5 * stddev / np.sqrt(4000)
    assert np.all(np.abs(p.mean[:, 0] - mean) < error)
    np.testing.assert_allclose(
        p.stddev[:, 0], stddev, rtol=5 / np.sqrt(2 * 4000)
    )


def covariance_of_outputs(posterior, derivative):
    """Returns `J C J^T` with the full covariance C of the weights."""
    sizes = [m.size for m in posterior.mean()]
    starts = np.cumsum([0, *sizes])
    full = np.zeros((starts[-1],) * 2)
    layout, arrays = layout_and_arrays(posterior.covariance_blocks())
    for kind, *indices in layout:
        places = np.concatenate(
            [
                np.arange(starts[i], starts[i + 1])
                for i in indices
                if i is not None
            ]
        )
        if kind == "variance":
            full[places, places] = arrays.pop(0).ravel()
        else:
            basis = np.kron(arrays.pop(0), arrays.pop(0))
            variance = arrays.pop(0).ravel()
            full[np.ix_(places, places)] = (basis * variance) @ basis.T
    return np.einsum("bci,ij,bdj->bcd", derivative, full, derivative)


@pytest.fixture(scope="module", params=["all-kron", "all-diag", "last-kron"])
def laplace(request):
    """A convolutional classifier and its Laplace approximation."""
    subset, structure = request.param.split("-")
    model = keras.Sequential(
        [
            keras.Input((6, 6, 1)),
            keras.layers.Conv2D(2, 3, activation="tanh"),
            keras.layers.BatchNormalization(),
            keras.layers.Flatten(),
            keras.layers.Dense(3),
        ]
    )
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile("sgd", loss)
    x = RNG.normal(size=(40, 6, 6, 1)).astype("float32")
    posterior = bdl.fit_laplace(
        model,
        (x, RNG.integers(0, 3, 40)),
        subset={"all": "all", "last": "last_layer"}[subset],
        structure={"kron": "kronecker", "diag": "diagonal"}[structure],
        refinements=0,
        prior_precision=1.0,
        verbose=0,
    )
    with tf.GradientTape() as tape:
        outputs = model(x[:5], training=False)
    variables = [v.value for v in model.trainable_variables]
    rows = [
        np.reshape(j, (5, 3, -1)) for j in tape.jacobian(outputs, variables)
    ]
    covariance = covariance_of_outputs(posterior, np.concatenate(rows, -1))
    return model, posterior, x[:5], outputs.numpy(), covariance


def test_probit_has_the_covariance_of_the_full_jacobian(laplace):
    model, posterior, x, logits, covariance = laplace
    variances = np.einsum("bcc->bc", covariance)
    expected = special.softmax(logits / np.sqrt(1 + np.pi / 8 * variances), -1)
    p = bdl.predict(
        model,
        x,
        posterior,
        options=bdl.prediction.PredictOptions(link="probit"),
        verbose=0,
    )
    np.testing.assert_allclose(p.mean, expected, 1e-5, 1e-6)
    assert np.all(np.isnan(p.mutual_information))
    predictive = bdl.PosteriorPredictive(
        model,
        posterior,
        options=bdl.prediction.PredictOptions(link="probit"),
        outputs="mean",
    )
    np.testing.assert_allclose(predictive(x), expected, 1e-5, 1e-6)


def test_outputs_drawn_have_the_covariance_of_the_full_jacobian(laplace):
    model, posterior, x, logits, covariance = laplace
    count = 20_000
    p = bdl.predict(
        model,
        x,
        posterior,
        options=bdl.prediction.PredictOptions(link="monte_carlo"),
        samples=count,
        keep_samples=True,
        verbose=0,
    )
    odds = np.log(p.samples[..., :2] / p.samples[..., 2:])
    contrast = np.array([[1.0, 0.0, -1.0], [0.0, 1.0, -1.0]])
    mean = logits @ contrast.T
    expected = contrast @ covariance @ contrast.T
    variances = np.einsum("bcc->bc", expected)
    error = 5 * np.sqrt(variances / count)
    assert np.all(np.abs(odds.mean(0) - mean) < error)
    centred = odds - mean
    found = np.einsum("sbc,sbd->bcd", centred, centred) / count
    # Var(a b) = v_a v_b + c_ab^2 for Gaussians a and b.
    spread = variances[:, :, None] * variances[:, None, :] + expected**2
    assert np.all(np.abs(found - expected) < 5 * np.sqrt(spread / count))


def test_identity_link_equals_bayesian_ridge():
    rng = np.random.default_rng(1)
    x = rng.normal(size=(40, 3)).astype("float32")
    y = x @ [1.0, -2.0, 0.5] + 0.3 * rng.normal(size=40)
    ridge = BayesianRidge(
        alpha_init=1 / 0.3**2, lambda_init=2.0, max_iter=1, fit_intercept=False
    )
    ridge.fit(x, y)
    model = keras.Sequential(
        [keras.Input((3,)), keras.layers.Dense(1, use_bias=False)]
    )
    noise = float(ridge.alpha_**-0.5)
    model.compile("sgd", bdl.likelihoods.Gaussian(noise_stddev=noise))
    model.set_weights([ridge.coef_[:, None]])
    posterior = bdl.fit_laplace(
        model, x, prior_precision=float(ridge.lambda_), verbose=0
    )
    p = bdl.predict(
        model,
        X,
        posterior,
        options=bdl.prediction.PredictOptions(link="identity"),
        verbose=0,
    )
    mean, stddev = ridge.predict(X, return_std=True)
    # A mean near zero is a difference of numbers near one.
    np.testing.assert_allclose(p.mean[:, 0], mean, 1e-5, 1e-6)
    np.testing.assert_allclose(p.stddev[:, 0], stddev, 1e-5)
    predictive = bdl.PosteriorPredictive(
        model,
        posterior,
        options=bdl.prediction.PredictOptions(link="identity"),
        outputs=("mean", "stddev"),
    )
    np.testing.assert_allclose(predictive(X)["stddev"][:, 0], stddev, 1e-5)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"link": "logit"}, "must be one of"),
        ({"link": "identity"}, "of a classifier must be one of"),
        ({"link": "probit", "samples": 3}, "`samples` must be `None`"),
        ({"link": "probit", "linearized": False}, "needs a linearised network"),
        ({"link": "probit", "keep_samples": True}, "without samples"),
    ],
)
def test_link_is_checked(laplace, arguments, message):
    model, posterior, x, *_ = laplace
    with pytest.raises(ValueError, match=message):
        arguments = predict_arguments(**arguments)
        bdl.predict(model, x, posterior, verbose=0, **arguments)


def test_link_needs_independent_weights_or_kronecker_factors():
    model = network()
    mean = [np.array(v) for v in model.trainable_variables]
    deviations = [np.ones((2, *m.shape)) for m in mean]
    swag = bdl.posteriors.LowRankGaussian(mean, None, deviations)
    diagonal = bdl.posteriors.LowRankGaussian(mean, [m**2 for m in mean])
    assert len(diagonal.covariance_blocks()) == len(mean)
    with pytest.raises(ValueError, match="independent weights or of Kronecker"):
        bdl.predict(
            model,
            X,
            swag,
            options=bdl.prediction.PredictOptions(
                linearized=True, link="identity", task="regression"
            ),
        )


def test_what_has_no_closed_form_is_refused(laplace):
    model, posterior, *_ = laplace
    with pytest.raises(ValueError, match="which need no samples"):
        bdl.PosteriorPredictive(
            model,
            posterior,
            options=bdl.prediction.PredictOptions(link="probit"),
            outputs="mutual_information",
        )


def test_variational_layers_are_linearised_around_their_means():
    model = keras.Sequential(
        [keras.Input((3,)), bdl.layers.MeanFieldDense(2, dataset_size=9)]
    )
    posterior = Layerwise(model)
    sampled, linear = (
        bdl.predict(
            model,
            X,
            posterior,
            samples=3,
            options=bdl.prediction.PredictOptions(
                task="regression", linearized=linearized
            ),
            keep_samples=True,
            verbose=0,
        ).samples
        for linearized in (False, True)
    )
    np.testing.assert_allclose(linear, sampled, 1e-5, 1e-6)


def test_identity_link_has_the_variances_of_mean_field_layers():
    layer = bdl.layers.MeanFieldDense(2, dataset_size=9)
    model = keras.Sequential([keras.Input((3,)), layer])
    layer.kernel_rho.assign(RNG.normal(size=(3, 2)))
    p = bdl.predict(
        model,
        X,
        options=bdl.prediction.PredictOptions(
            linearized=True, link="identity", task="regression"
        ),
        verbose=0,
    )
    kernel, bias = (
        np.log1p(np.exp(rho)) ** 2 for rho in (layer.kernel_rho, layer.bias_rho)
    )
    expected = np.square(X) @ kernel + bias
    np.testing.assert_allclose(p.variance_between, expected, 1e-5)


@pytest.mark.parametrize(
    "layer",
    [
        bdl.layers.RadialDense(2, dataset_size=9),
        bdl.layers.MeanFieldDense(2, truncation=2.0, dataset_size=9),
    ],
)
def test_link_refuses_layers_without_gaussian_blocks(layer):
    model = keras.Sequential([keras.Input((3,)), layer])
    with pytest.raises(ValueError, match="mean-field layers"):
        bdl.predict(
            model,
            X,
            options=bdl.prediction.PredictOptions(
                linearized=True, link="identity", task="regression"
            ),
        )


def test_laplace_is_linearised_unless_told_otherwise():
    model = network()
    model.layers[1].trainable = False
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile("sgd", loss)
    y = RNG.integers(0, 3, len(X))
    posterior = bdl.fit_laplace(model, (X, y), subset="all", verbose=0)
    default, linear, sampled = (
        bdl.predict(
            model,
            X,
            posterior,
            samples=3,
            verbose=0,
            **predict_arguments(**kwargs),
        ).mean
        for kwargs in ({}, {"linearized": True}, {"linearized": False})
    )
    np.testing.assert_array_equal(default, linear)
    assert np.abs(default - sampled).max() > 1e-3


@pytest.mark.parametrize("kind", ["ensemble", "dropout", "none"])
def test_posteriors_without_a_mean_are_refused(kind):
    model = network()
    posterior = {
        "ensemble": Ensemble.from_models([model, model]),
        "dropout": MCDropout(),
        "none": None,
    }[kind]
    with pytest.raises(ValueError, match="needs a posterior with a mean"):
        bdl.predict(
            model,
            X,
            posterior,
            options=bdl.prediction.PredictOptions(
                linearized=True, task="regression"
            ),
            verbose=0,
        )


@pytest.mark.filterwarnings("ignore:.*BatchNorm statistics")
def test_link_example_by_example_gives_the_same(monkeypatch):
    model = keras.Sequential(
        [
            keras.Input((5, 5, 1)),
            keras.layers.Conv2D(4, 3),
            keras.layers.BatchNormalization(),
            keras.layers.LayerNormalization(),
            keras.layers.Flatten(),
            keras.layers.Dense(2),
        ]
    )
    posterior = gaussian(model)
    # As many images as channels: no shape tells the two apart.
    images = RNG.normal(size=(4, 5, 5, 1)).astype("float32")
    variances = []
    for largest in (2**24, 1):
        monkeypatch.setattr(output_gaussian, "_LARGEST", largest)
        predictive = bdl.PosteriorPredictive(
            model,
            posterior,
            options=bdl.prediction.PredictOptions(
                link="identity", linearized=True, task="regression"
            ),
            outputs="variance",
        )
        variances.append(predictive(images))
    np.testing.assert_allclose(*variances, 1e-4)
