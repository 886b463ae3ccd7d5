"""Laplace of a network with several outputs, each with its own likelihood."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import keras_bdl as bdl

RNG = np.random.default_rng(0)
N = 40
X = RNG.normal(size=(N, 3)).astype("float32")
Y = {
    "real": RNG.normal(size=(N, 2)).astype("float32"),
    "bits": RNG.integers(0, 2, (N, 4)).astype("float32"),
    "class": RNG.integers(0, 3, N),
    "count": RNG.poisson(2.0, (N, 2)).astype("float32"),
}
LOSSES = {
    "real": bdl.likelihoods.Gaussian(0.5),
    "bits": keras.losses.BinaryCrossentropy(from_logits=True),
    "class": keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    "count": keras.losses.Poisson(),
}
# Keras averages over the labels, and the likelihood is the product.
LABELS = {"real": 1, "bits": 4, "class": 1, "count": 2}
UNITS = {"real": 2, "bits": 4, "class": 3, "count": 2}


def heads(names, hidden=True):
    keras.utils.set_random_seed(0)
    inputs = keras.Input((3,))
    x = (
        keras.layers.Dense(4, "tanh", name="hidden")(inputs)
        if hidden
        else inputs
    )
    outputs = {
        name: keras.layers.Dense(
            UNITS[name],
            activation="exponential" if name == "count" else None,
            name=name,
        )(x)
        for name in names
    }
    model = keras.Model(inputs, outputs)
    model.compile("adam", {name: LOSSES[name] for name in names})
    return model


@pytest.fixture(scope="module")
def model():
    return heads(list(LOSSES))


def fit(model, **options):
    options = {"prior_precision": 1.0, "refinements": 0} | options
    y = {name: Y[name] for name in model.output_names}
    return bdl.fit_laplace(model, (X, y), verbose=0, **options)


def negative_log_likelihood(outputs):
    """The product over all labels of all examples, by hand."""
    real = tf.reduce_sum((outputs["real"] - Y["real"]) ** 2) / (2 * 0.5**2)
    bits = tf.nn.sigmoid_cross_entropy_with_logits(Y["bits"], outputs["bits"])
    classes = tf.nn.sparse_softmax_cross_entropy_with_logits(
        Y["class"], outputs["class"]
    )
    counts = outputs["count"] - Y["count"] * tf.math.log(outputs["count"])
    return real + sum(map(tf.reduce_sum, (bits, classes, counts)))


def test_curvature_is_the_hessian_of_the_sum_over_all_outputs():
    """The logits, means and log rates are linear in the weights."""
    model = heads(list(LOSSES), hidden=False)
    posterior = fit(model, subset="all", structure="diagonal")
    variables = model.trainable_variables
    with tf.GradientTape(persistent=True) as outer:
        with tf.GradientTape() as inner:
            loss = negative_log_likelihood(model(X))
        gradients = inner.gradient(loss, [v.value for v in variables])
        flat = [tf.reshape(g, [-1]) for g in gradients]
    draws = [posterior.sample(seed) for seed in range(3000)]
    for i, variable in enumerate(variables):
        rows = outer.jacobian(flat[i], variable.value)
        size = flat[i].shape[0]
        hessian = np.diag(np.reshape(rows, (size, size)))
        stddev = 1 / np.sqrt(hessian + 1.0)
        found = np.std([draw[i] for draw in draws], axis=0).ravel()
        np.testing.assert_allclose(
            found / stddev, 1.0, atol=5 / np.sqrt(2 * len(draws))
        )


def test_evidence_counts_the_likelihood_of_all_outputs(model):
    posterior = fit(model)
    found = posterior.get_state()["log_likelihood"]
    outputs = {name: np.asarray(v) for name, v in model(X).items()}
    expected = -sum(
        LABELS[name] * N * float(LOSSES[name](Y[name], outputs[name]))
        for name in LOSSES
    )
    np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_last_layers_have_the_posteriors_of_networks_with_one_output(model):
    """Given the hidden layer, the heads are independent."""
    joint = fit(model, refinements=1, seed=3)
    paths = [v.path for v in model.trainable_variables]
    means = dict(zip(paths, joint.mean(), strict=True))
    p = bdl.predict(model, X, joint, verbose=0, samples=300)
    for name in LOSSES:
        alone = heads([name])
        for variable in alone.trainable_variables:
            variable.assign(means[variable.path])
        posterior = fit(alone, refinements=1, seed=3)
        q = bdl.predict(alone, X, posterior, verbose=0, samples=300)[name]
        kind = "variance_between" if name in ("real", "count") else "stddev"
        own, other = (np.asarray(getattr(one, kind)) for one in (p[name], q))
        # The refinement draws the weights of all heads at once.
        np.testing.assert_allclose(own.mean(), other.mean(), rtol=0.15)


def test_drawn_labels_have_the_expected_curvature(model):
    expected = fit(model, structure="diagonal")
    drawn = fit(model, structure="diagonal", labels="drawn", label_samples=300)
    compared = 0
    for one, other in zip(expected._curvature, drawn._curvature, strict=True):
        if one is not None and np.any(one):
            np.testing.assert_allclose(other.sum(), one.sum(), rtol=0.1)
            compared += 1
    assert compared == 2 * len(LOSSES)


def test_an_output_without_a_loss_is_refused(model):
    some = keras.Model(model.inputs, model.outputs)
    some.compile("adam", [*LOSSES.values()][:3] + [None])
    with pytest.raises(ValueError, match="needs a loss for each output"):
        bdl.fit_laplace(some, X, refinements=0, verbose=0)


def test_refinements_for_a_classifier_leave_predicted_noise_as_it_is():
    inputs = keras.Input((3,))
    moments = bdl.likelihoods.mean_and_stddev
    outputs = {
        "real": keras.layers.Dense(4, moments, name="real")(inputs),
        "class": keras.layers.Dense(3, name="class")(inputs),
    }
    model = keras.Model(inputs, outputs)
    gaussian = bdl.likelihoods.Gaussian()
    model.compile("adam", {"real": gaussian, "class": LOSSES["class"]})
    found = [
        fit(model, structure="diagonal", prior_precision=0.1, refinements=n)
        for n in (0, 3)
    ]
    names = [v.path for v in model.trainable_variables]
    for name, one, other in zip(
        names, *(p._curvature for p in found), strict=True
    ):
        if name.startswith("real"):
            np.testing.assert_allclose(one, other, rtol=1e-5)
        else:
            assert np.abs(one - other).max() > 1e-3


class Listed(keras.Model):
    """Returns its only output in a list, as Keras allows."""

    def __init__(self):
        super().__init__()
        self.only = keras.layers.Dense(4)

    def call(self, x):
        return [self.only(x)]


def test_evidence_of_one_output_in_a_list_counts_all_examples():
    model = Listed()
    model.compile("adam", LOSSES["bits"])
    model(X)
    posterior = bdl.fit_laplace(model, (X, Y["bits"]), verbose=0)
    mean = float(LOSSES["bits"](Y["bits"], model(X)[0]))
    found = posterior.get_state()["log_likelihood"]
    np.testing.assert_allclose(found, -N * LABELS["bits"] * mean, rtol=1e-5)


def test_validation_of_a_loss_that_is_not_compiled_names_the_way_out():
    model = heads(["count"])
    model.compile("adam", "mse")
    with pytest.raises(ValueError, match="the Poisson loss.*in `compile`"):
        bdl.fit_laplace(
            model,
            (X, Y["count"]),
            loss="poisson",
            prior_precision="validation",
            validation_data=(X, Y["count"]),
            verbose=0,
        )
