"""The likelihood of an example is the product over its labels.

Keras averages a binary cross-entropy and a Poisson loss over the labels of an
example. The network is `w x` with one weight for each label, so that the
posterior of each weight is an integral over one number.
"""

import functools
import warnings

import keras
import numpy as np
import pytest
import tensorflow as tf

import keras_bdl as bdl

LABELS, N, WIDTH = 6, 50, 3.0
RNG = np.random.default_rng(0)
X = RNG.normal(size=(N, 1)).astype("float32")
TRUE = RNG.uniform(-1.0, 1.0, size=(1, LABELS))
PRIOR = bdl.priors.Normal(WIDTH)
Y = {
    "bits": RNG.binomial(1, 1 / (1 + np.exp(-X * TRUE))).astype("float32"),
    "counts": RNG.poisson(np.exp(X * TRUE)).astype("float32"),
}
LOSSES = {
    "bits": functools.partial(
        keras.losses.BinaryCrossentropy, from_logits=True
    ),
    "counts": keras.losses.Poisson,
}
ACTIVATIONS = {"bits": None, "counts": "exponential"}
CASES = list(LOSSES)


def residuals(kind, w):
    """Derivative of each label's negative log-likelihood by `w x`."""
    mean = {"bits": lambda z: 1 / (1 + np.exp(-z)), "counts": np.exp}[kind]
    return mean(X * w) - Y[kind]


@functools.cache
def exact(kind):
    """Mean and standard deviation of the posterior of each weight."""
    grid = np.linspace(-6.0, 6.0, 12001)
    z = X * grid
    log_partition = np.logaddexp(0, z) if kind == "bits" else np.exp(z)
    log_p = Y[kind].T @ z - log_partition.sum(0) - 0.5 * (grid / WIDTH) ** 2
    p = np.exp(log_p - log_p.max(1, keepdims=True))
    p /= p.sum(1, keepdims=True)
    mean = p @ grid
    return mean, np.sqrt(p @ grid**2 - mean**2)


def head(kind, layer=keras.layers.Dense, name=None, **options):
    return layer(
        LABELS,
        use_bias=False,
        activation=ACTIVATIONS[kind],
        name=name,
        **options,
    )


def functional(cls, kind, *args, **options):
    inputs = keras.Input((1,))
    return cls(inputs, head(kind, *args, **options)(inputs))


def subclassed(cls, kind):
    class Network(cls):
        def __init__(self):
            super().__init__()
            self.only = head(kind)

        def call(self, x):
            return self.only(x)

    return Network()


def two_outputs(cls, kind):
    """The network and a classifier, whose loss is a sum over its labels."""
    inputs = keras.Input((1,))
    outputs = {
        "own": head(kind)(inputs),
        "other": keras.layers.Dense(2, name="other")(inputs),
    }
    return cls(inputs, outputs)


MODELS = {
    "keras.Model": functools.partial(functional, keras.Model),
    "subclass of keras.Model": functools.partial(subclassed, keras.Model),
    "keras_bdl.Model": functools.partial(functional, bdl.Model),
    "subclass of keras_bdl.Model": functools.partial(subclassed, bdl.Model),
    "two outputs": functools.partial(two_outputs, bdl.Model),
}


@pytest.mark.parametrize("kind", CASES)
@pytest.mark.parametrize(
    "name, sampler",
    [*((name, bdl.SGLD) for name in MODELS), ("keras_bdl.Model", bdl.ATMC)],
)
def test_energy_of_a_sampler_is_that_of_the_product(
    kind, name, sampler, monkeypatch
):
    found = {}
    of_energy = sampler.energy_gradient

    def energy_gradient(self, gradient, variable):
        result = of_energy(self, gradient, variable)
        found[tuple(variable.shape)] = np.asarray(result)
        return result

    monkeypatch.setattr(sampler, "energy_gradient", energy_gradient)
    model = MODELS[name](kind)
    loss, y = LOSSES[kind](), Y[kind]
    if name == "two outputs":
        other = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        loss = {"own": loss, "other": other}
        y = {"own": y, "other": np.zeros(N)}
    model.compile(
        sampler(1e-6, dataset_size=N, prior=PRIOR), loss, run_eagerly=True
    )
    model(X)
    weights = [v for v in model.weights if tuple(v.shape) == (1, LABELS)]
    weights[0].assign(TRUE)
    shown = model.evaluate(X, y, verbose=0, return_dict=True)["loss"]
    trained = model.train_on_batch(X, y, return_dict=True)["loss"]
    expected = X.T @ residuals(kind, TRUE) + TRUE / WIDTH**2
    np.testing.assert_allclose(found[1, LABELS], expected, rtol=1e-4, atol=1e-4)
    # Keras shows the mean over the labels, as without a sampler.
    np.testing.assert_allclose(trained, shown, rtol=1e-5)
    z = X * TRUE
    if kind == "bits" and name != "two outputs":
        mean = np.mean(np.logaddexp(0, z) - Y[kind] * z)
        np.testing.assert_allclose(shown, mean, rtol=1e-5)


VI = bdl.objectives
HUTCHINSON = VI.Hutchinson()
PRECISION = 1 / WIDTH**2
START = {"prior_precision": PRECISION, "initial_curvature": 0.05}
METHODS = {
    "VOGN": lambda: {
        "optimizer": bdl.VOGN(0.1, N, beta_2=0.97, **START),
        "train_samples": 4,
    },
    "IVON": lambda: {
        "optimizer": bdl.IVON(0.03, N, beta_2=0.99, **START),
        "train_samples": 4,
    },
    "sampled VI": lambda: {
        "optimizer": keras.optimizers.Adam(
            keras.optimizers.schedules.CosineDecay(0.05, 400)
        ),
        "objective": VI.SampledVI(
            "diagonal", prior=PRIOR, stddev=0.1, dataset_size=N
        ),
        "train_samples": 8,
    },
    "Taylor VI": lambda: {
        "optimizer": keras.optimizers.Adam(0.05),
        "objective": VI.TaylorVI(
            "diagonal",
            prior=PRIOR,
            stddev=0.1,
            hessian_diagonal=HUTCHINSON,
            dataset_size=N,
        ),
    },
    "mean-field": lambda: {
        "optimizer": keras.optimizers.Adam(
            keras.optimizers.schedules.CosineDecay(0.05, 400)
        ),
        "train_samples": 8,
    },
}


# The labels differ in the loss alone, and one method has both.
@pytest.mark.parametrize(
    ("kind", "method"),
    [("counts", "VOGN"), *(("bits", method) for method in METHODS)],
)
def test_width_of_a_posterior_is_that_of_the_product(kind, method):
    mean, stddev = exact(kind)
    layer = {}
    if method == "mean-field":
        rho = keras.initializers.Constant(-2.0)
        layer = {
            "layer": bdl.layers.MeanFieldDense,
            "prior": PRIOR,
            "rho_initializer": rho,
            "dataset_size": N,
        }
    model = functional(bdl.Model, kind, **layer)
    weights = model.get_weights()
    weights[0][:] = mean
    model.set_weights(weights)
    model.compile(loss=LOSSES[kind](), **METHODS[method]())
    batch = tf.data.Dataset.from_tensors((X, Y[kind]))
    model.fit(batch.repeat(400), verbose=0)
    posterior = bdl.posterior_of(model)
    if method == "mean-field":
        found = np.log1p(np.exp(model.get_weights()[1][0]))
    else:
        draws = np.stack([posterior.sample(seed)[0][0] for seed in range(500)])
        found = draws.std(0)
    # The mean over the labels of a width would be 2.4 times as large.
    np.testing.assert_allclose(np.mean(found / stddev), 1.0, atol=0.15)


@pytest.mark.parametrize("kind", CASES)
@pytest.mark.parametrize("structure", ["diagonal", "kronecker"])
@pytest.mark.parametrize("labels", ["expected", "drawn"])
def test_laplace_has_the_curvature_of_the_product(kind, structure, labels):
    mean, _ = exact(kind)
    model = functional(keras.Model, kind)
    model.set_weights([mean[None].astype("float32")])
    model.compile("adam", LOSSES[kind]())
    posterior = bdl.fit_laplace(
        model,
        (X, Y[kind]),
        structure=structure,
        prior_precision=PRECISION,
        refinements=0,
        labels=labels,
        label_samples=1 if labels == "expected" else 400,
        verbose=0,
    )
    draws = np.stack([posterior.sample(seed)[0][0] for seed in range(4000)])
    z = X * mean
    variance = np.exp(z) if kind == "counts" else 1 / (2 + 2 * np.cosh(z))
    fisher = np.sum(X**2 * variance, axis=0)
    if structure == "kronecker":  # a product of two means
        fisher = np.sum(X**2) * np.mean(variance, axis=0)
    stddev = 1 / np.sqrt(fisher + PRECISION)
    error = 5 / np.sqrt(2 * len(draws))
    if labels == "drawn":
        error += 0.1
    np.testing.assert_allclose(draws.std(0) / stddev, 1.0, atol=error)


@pytest.mark.parametrize("observations", [None, "examples", "positions"])
def test_a_mean_over_positions_warns_once_unless_it_is_chosen(observations):
    tokens = RNG.normal(size=(8, 5, 2)).astype("float32")
    model = bdl.Sequential([keras.Input((5, 2)), keras.layers.Dense(3)])
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(bdl.IVON(), loss, observations=observations)
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        model.fit(tokens, np.zeros((8, 5)), epochs=2, verbose=0)
    said = [str(one.message) for one in found]
    said = [one for one in said if "a value for each position" in one]
    assert len(said) == (observations is None)
    assert not said or 'observations="positions"' in said[0]


def test_a_loss_of_ones_own_warns_unless_it_says_that_it_is_a_likelihood():
    def own(y_true, y_pred):
        return keras.ops.sum(keras.ops.abs(y_true - y_pred), axis=-1)

    for known in (False, True):
        own.is_likelihood = known
        model = functional(bdl.Model, "bits")
        model.compile(bdl.SGLD(1e-3), own)
        with warnings.catch_warnings(record=True) as found:
            warnings.simplefilter("always")
            model.fit(X, Y["bits"], epochs=2, verbose=0)
        said = [str(one.message) for one in found]
        said = [one for one in said if "is not known to be one" in one]
        assert len(said) == (not known)
        assert known or "`is_likelihood = True`" in said[0]


def assert_descends(weights, before):
    """The step of SGD must have the direction of the exact energy."""
    after = np.asarray(weights)
    moved = before - after
    energy = X.T @ residuals("bits", before) + before / WIDTH**2
    cosine = np.sum(moved * energy)
    cosine /= np.linalg.norm(moved) * np.linalg.norm(energy)
    np.testing.assert_allclose(cosine, 1.0, atol=1e-4)


def with_layer(cls, layer, is_subclass):
    """Returns a model with one layer and no symbolic outputs if a subclass."""
    if not is_subclass:
        inputs = keras.Input((1,))
        return cls(inputs, layer(inputs))

    class Network(cls):
        def __init__(self):
            super().__init__()
            self.only = layer

        def call(self, x, training=None):
            return self.only(x, training=training)

    return Network()


@pytest.mark.parametrize("is_subclass", [False, True])
@pytest.mark.parametrize("cls", [keras.Model, bdl.Model])
@pytest.mark.parametrize("method", ["mean-field", "Radial", "regularizer"])
def test_descent_with_a_prior_is_that_of_the_product(method, cls, is_subclass):
    prior = bdl.priors.Normal(WIDTH, dataset_size=N)
    if method == "regularizer":
        layer = keras.layers.Dense(
            LABELS, use_bias=False, kernel_regularizer=prior
        )
    else:
        layer = {
            "mean-field": bdl.layers.MeanFieldDense,
            "Radial": bdl.layers.RadialDense,
        }[method](
            LABELS,
            use_bias=False,
            prior=PRIOR,
            dataset_size=N,
            rho_initializer=keras.initializers.Constant(-20.0),
        )
    model = with_layer(cls, layer, is_subclass)
    model(X)
    model.compile(keras.optimizers.SGD(1e-3), LOSSES["bits"]())
    weights = model.trainable_variables[0]
    # The prior has a part in the direction that is easy to see.
    start = (30.0 * TRUE).astype("float32")
    weights.assign(start)
    model.train_on_batch(X, Y["bits"])
    assert_descends(weights, start)


@pytest.mark.parametrize("is_subclass", [False, True])
def test_a_sampler_counts_the_labels_of_each_compile(is_subclass):
    model = with_layer(keras.Model, head("bits"), is_subclass)
    model(X)
    sampler = bdl.SGLD(1e-4, N, temperature=0.0, prior=PRIOR)
    several = keras.losses.CategoricalCrossentropy(from_logits=True)
    for loss in (several, LOSSES["bits"](), several):
        model.compile(sampler, loss)
        start = (30.0 * TRUE).astype("float32")
        model.trainable_variables[0].assign(start)
        model.train_on_batch(X, np.eye(LABELS)[np.arange(N) % LABELS])
        labels = 1 if loss is several else LABELS
        assert float(sampler.dataset_size.value()) == labels * N


@keras.saving.register_keras_serializable("test_several_labels")
class Loaded(bdl.Model):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.only = head("bits")

    def call(self, x):
        return self.only(x)


@pytest.mark.parametrize("method", [bdl.VOGN, bdl.IVON])
def test_a_loaded_subclass_goes_on_with_the_same_posterior(method, tmp_path):
    model = Loaded()
    model.compile(method(1e-2, N), LOSSES["bits"]())
    model.fit(X, Y["bits"], batch_size=N, epochs=3, verbose=0)
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    for one, other in zip(
        bdl.posterior_of(model).sample(0),
        bdl.posterior_of(loaded).sample(0),
        strict=True,
    ):
        np.testing.assert_array_equal(one, other)
    assert float(model.optimizer.dataset_size.value()) == LABELS * N
    for one in (model, loaded):
        one.fit(X, Y["bits"], batch_size=N, shuffle=False, verbose=0)
    np.testing.assert_array_equal(model.get_weights(), loaded.get_weights())


def two_heads(bits):
    inputs = keras.Input((1,))
    outputs = {
        "bits": keras.layers.Dense(bits, use_bias=False)(inputs),
        "class": keras.layers.Dense(4, use_bias=False)(inputs),
    }
    model = keras.Model(inputs, outputs)
    cross = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    loss = {"bits": LOSSES["bits"](), "class": cross}
    model.compile(bdl.SGLD(1e-4, N, prior=PRIOR, temperature=0.0), loss)
    return model


def test_a_plain_model_may_have_one_label_beside_classes():
    model = two_heads(1)
    start = [np.asarray(w) for w in model.get_weights()]
    y = {"bits": Y["bits"][:, :1], "class": np.zeros(N)}
    model.train_on_batch(X, y)
    p = 1 / (1 + np.exp(-X * start[0]))
    energy = X.T @ (p - y["bits"]) + start[0] / WIDTH**2
    moved = start[0] - model.get_weights()[0]
    np.testing.assert_allclose(moved, 1e-4 / N * energy, rtol=1e-2)


def test_a_plain_model_with_labels_beside_classes_is_refused():
    model = two_heads(LABELS)
    y = {"bits": Y["bits"], "class": np.zeros(N)}
    with pytest.raises(ValueError, match="needs a `keras_bdl.Model`.*, 6"):
        model.train_on_batch(X, y)
