import contextlib
import threading
from concurrent.futures import ThreadPoolExecutor

import keras
import numpy as np
import pytest
import tensorflow as tf
from scipy.stats import multivariate_normal

import keras_bdl as bdl
from keras_bdl import layers
from keras_bdl.layers import MeanFieldDense
from keras_bdl.layers import _weight_draw as weight_draw
from keras_bdl.layers._variational import replaced
from tests.helpers import assert_moment
from tests.helpers import dtype_policy

IMAGE, LINE, VOLUME = (6, 6, 4), (8, 4), (4, 4, 4, 2)
CASES = {
    "Dense": ((5,), {"units": 3, "activation": "tanh"}),
    "EinsumDense": (
        (6, 4),
        {
            "equation": "abc,cde->abde",
            "output_shape": (6, 2, 3),
            "bias_axes": "de",
        },
    ),
    "Conv1D": (LINE, {"filters": 3, "kernel_size": 3, "padding": "causal"}),
    "Conv2D": (
        IMAGE,
        {"filters": 6, "kernel_size": 3, "strides": 2, "groups": 2},
    ),
    "Conv3D": (VOLUME, {"filters": 2, "kernel_size": 2}),
    "Conv2DTranspose": (IMAGE, {"filters": 3, "kernel_size": 3, "strides": 2}),
    "DepthwiseConv2D": (IMAGE, {"kernel_size": 3, "depth_multiplier": 2}),
}
KINDS = [f"{kind}{name}" for kind in ("MeanField", "Radial") for name in CASES]


def make(name, **kwargs):
    kind = "MeanField" if name.startswith("MeanField") else "Radial"
    shape, arguments = CASES[name.removeprefix(kind)]
    layer = getattr(layers, name)(
        **arguments, bias_initializer="random_normal", dataset_size=10, **kwargs
    )
    x = np.random.default_rng(0).normal(size=(4, *shape)).astype("float32")
    layer(x)
    return layer, x


@pytest.mark.parametrize("name", KINDS)
def test_outputs_equal_the_keras_layer_with_the_means_or_a_draw(name):
    layer, x = make(name)
    kind = "MeanField" if name.startswith("MeanField") else "Radial"
    shape, arguments = CASES[name.removeprefix(kind)]
    twin = getattr(keras.layers, name.removeprefix(kind))(**arguments)
    twin.build((None, *shape))
    twin.set_weights([layer.kernel_mean, layer.bias_mean])
    np.testing.assert_allclose(layer(x), twin(x), atol=1e-6)
    assert not layer.losses

    y = layer(x, training=True)
    assert len(layer.losses) == 1
    # The Keras layer with the drawn weights has the same outputs.
    drawn = layer._forward_pass().drawn
    twin.set_weights([drawn["kernel"], drawn["bias"]])
    np.testing.assert_allclose(y, twin(x), atol=1e-5)


@pytest.mark.parametrize("name", KINDS)
def test_save_load_and_clone_keep_layer_and_outputs(name, tmp_path):
    prior = bdl.priors.Laplace(0.3)
    shape = make(name)[1].shape[1:]
    kind = "MeanField" if name.startswith("MeanField") else "Radial"
    _, arguments = CASES[name.removeprefix(kind)]
    layer = getattr(layers, name)(
        **arguments, prior=prior, estimator="flipout", seed=4, dataset_size=7
    )
    model = keras.Sequential([keras.Input(shape), layer])
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    x = np.ones((2, *shape), "float32")
    np.testing.assert_array_equal(loaded(x), model(x))
    assert loaded.layers[0].get_config() == layer.get_config()
    clone = keras.models.clone_model(model)
    assert clone.layers[0].get_config() == layer.get_config()


@pytest.mark.parametrize(
    "name, estimator",
    # Convolutions of all dimensions share their code, and so do both kinds.
    [
        ("MeanFieldDense", "local"),
        ("MeanFieldDense", "flipout"),
        ("MeanFieldEinsumDense", "flipout"),
        ("MeanFieldConv2D", "flipout"),
        ("MeanFieldConv2DTranspose", "flipout"),
        ("MeanFieldDepthwiseConv2D", "flipout"),
        ("RadialConv1D", "flipout"),
    ],
)
def test_estimators_keep_the_expectation_and_reduce_the_variance(
    name, estimator
):
    # For the loss and all gradients, through two layers, in a batch of 32.
    # All examples share the length of Radial noise, which has no sign to flip.
    rho = keras.initializers.Constant(-3.0 if "Radial" in name else -1.0)
    x = np.random.default_rng(0).normal(size=(32, *_shape(name)))
    x = tf.constant(x, "float32")
    nets = [two_layers(name, kind, rho) for kind in ("weight", estimator)]
    for net in nets:
        net(x)
    nets[1].set_weights(nets[0].get_weights())
    (mean, variance), (other_mean, other_variance) = (
        moments(net, x, draws=1000) for net in nets
    )
    error = np.sqrt((variance + other_variance) / 1000)
    assert np.all(np.abs(mean - other_mean) < 5 * error + 1e-7)
    assert other_variance[0] < variance[0]  # the variance of the loss
    assert other_variance[1:].sum() < variance[1:].sum()


def _shape(name):
    return CASES[name.removeprefix("MeanField").removeprefix("Radial")][0]


def two_layers(name, estimator, rho):
    first, _ = make(name, estimator=estimator, rho_initializer=rho)
    dense = layers.MeanFieldDense
    if name.startswith("Radial"):
        dense = layers.RadialDense
    return keras.Sequential(
        [
            first,
            keras.layers.Activation("tanh"),
            keras.layers.Flatten(),
            dense(2, estimator=estimator, rho_initializer=rho, dataset_size=10),
        ]
    )


def moments(net, x, draws):
    """Returns mean and variance of the loss and all gradients over draws."""

    def one(_):
        with tf.GradientTape() as tape:
            y = net(x, training=True)
            # A function that is not linear in the weights.
            loss = tf.reduce_mean(tf.square(y) + tf.sin(y))
        gradients = tape.gradient(loss, net.trainable_variables)
        parts = [tf.reshape(g, [-1]) for g in gradients]
        return tf.concat([[loss], *parts], 0)

    size = 1 + sum(int(np.prod(v.shape)) for v in net.trainable_variables)
    spec = tf.TensorSpec((size,), tf.float32)

    @tf.function(autograph=False)
    def run():
        return tf.map_fn(one, tf.range(draws), fn_output_signature=spec)

    values = run().numpy().astype("float64")
    return values.mean(0), values.var(0)


def network(**kwargs):
    inputs = keras.Input((3,))
    shared = layers.MeanFieldDense(3, name="shared", **kwargs)
    inner = keras.Sequential([keras.Input((3,)), shared])
    x = inner(shared(inputs))
    outputs = layers.RadialDense(1, **kwargs)(x)
    return inputs, outputs


def nearly_equal_layers():
    """A network with layers of one shape: three alike, others not quite."""
    keras.utils.set_random_seed(0)
    arguments = [
        {},
        {},
        {"prior": bdl.priors.Normal(1.0)},
        {"prior": bdl.priors.Normal(2.0)},
        {"prior": bdl.priors.Normal(1.0, mean=0.5)},
        {"prior": bdl.priors.Laplace(1.0)},
        {"prior": bdl.priors.Laplace(0.5)},
        {"prior": bdl.extend.StoredPrior("mean_field")},
        {"estimator": "flipout"},
        {"estimator": "local"},
        {"variational_bias": False},
    ]
    rho = keras.initializers.Constant(0.0)
    return keras.Sequential(
        [keras.Input((3,))]
        + [
            layers.MeanFieldDense(
                3, dataset_size=12, rho_initializer=rho, seed=i, **given
            )
            for i, given in enumerate(arguments)
        ]
    )


def test_layers_alike_share_a_trace_and_compute_as_in_eager_mode(monkeypatch):
    traced = []

    def counted(layer, *args):
        traced.append(layer)
        return results_of(layer, *args)

    results_of = weight_draw.results_of
    monkeypatch.setattr(weight_draw, "results_of", counted)

    def loss_and_gradients(model):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(model(X, training=True) ** 2)
            losses = [loss, *model.losses]
            total = tf.add_n(losses)
        variables = [v.value for v in model.trainable_variables]
        return losses, tape.gradient(total, variables)

    eager = loss_and_gradients(nearly_equal_layers())
    assert len(traced) == 11
    graph = tf.function(loss_and_gradients, autograph=False)
    found = graph(nearly_equal_layers())
    # The first three share a trace.
    assert len(traced) - 11 == 9
    for one, expected in zip(
        tf.nest.flatten(found), tf.nest.flatten(eager), strict=True
    ):
        np.testing.assert_allclose(one, expected, rtol=1e-4, atol=1e-5)


X = np.random.default_rng(1).normal(size=(12, 3)).astype("float32")
Y = X[:, :1]


def total_kl(model):
    return sum(
        float(layer.kl_divergence())
        for layer in model._flatten_layers()
        if hasattr(layer, "kl_divergence")
    )


@pytest.mark.parametrize(
    "draws, batch_size, size",
    [(1, 4, None), (3, 4, 40)],
)
def test_loss_is_nll_plus_kl_of_each_layer_once(draws, batch_size, size):
    model = bdl.Model(*network(dataset_size=size))
    frozen = keras.optimizers.SGD(0.0)
    model.compile(frozen, "mse", train_samples=draws)
    with pytest.warns(UserWarning) if size else contextlib.nullcontext():
        logs = model.fit(
            X, Y, batch_size=batch_size, verbose=0, validation_data=(X, Y)
        ).history
    kl = total_kl(model) / (size or 12)
    for prefix in ("", "val_"):
        assert logs[f"{prefix}kl"][0] == pytest.approx(kl, rel=1e-5)
        parts = logs[f"{prefix}nll"][0] + logs[f"{prefix}kl"][0]
        assert logs[f"{prefix}loss"][0] == pytest.approx(parts, rel=1e-5)
    nll = np.mean((model.predict(X, verbose=0) - Y) ** 2)
    assert logs["val_nll"][0] == pytest.approx(nll, rel=1e-3)


@pytest.mark.parametrize("replicas, at_once", [(2, 1), (1, 3)])
def test_loss_is_equal_on_replicas_and_for_several_steps_per_execution(
    replicas, at_once, mirrored
):
    with mirrored.scope() if replicas == 2 else contextlib.nullcontext():
        model = bdl.Model(*network())
        model.compile(
            keras.optimizers.SGD(0.0), "mse", steps_per_execution=at_once
        )
    logs = model.fit(X, Y, batch_size=4, verbose=0).history
    kl = total_kl(model) / 12
    assert logs["kl"][0] == pytest.approx(kl, rel=1e-5)
    assert logs["loss"][0] == pytest.approx(logs["nll"][0] + kl, rel=1e-5)


def test_each_replica_draws_other_weights(mirrored):
    with mirrored.scope():
        layer = layers.MeanFieldDense(3, dataset_size=1)
        layer.build((None, 3))
    ones = tf.ones((1, 3))
    draws = mirrored.run(tf.function(lambda: layer(ones, training=True)))
    a, b = mirrored.experimental_local_results(draws)
    assert not np.allclose(a, b)


def test_plain_model_without_n_says_what_to_write():
    model = keras.Model(*network())
    model.compile("sgd", "mse")
    model.predict(X, verbose=0)
    model.evaluate(X, Y, verbose=0)
    with pytest.raises(ValueError, match=r"Dense\(..., dataset_size="):
        model.fit(X, Y, verbose=0)


def test_evaluation_without_n_is_the_likelihood_alone():
    model = bdl.Model(*network())
    model.compile("sgd", "mse")
    before = model.evaluate(X, Y, verbose=0, return_dict=True)
    assert before["loss"] == pytest.approx(before["nll"])
    model.fit(X, Y, verbose=0)
    after = model.evaluate(X, Y, verbose=0, return_dict=True)
    assert after["loss"] == pytest.approx(after["nll"] + after["kl"], rel=1e-6)


def test_mean_field_regression_finds_the_known_optimum():
    # The means are exact. The variances are the inverse of the diagonal of the
    # precision.
    rng = np.random.default_rng(0)
    x = rng.normal(size=(60, 3)).astype("float32")
    x[:, 1] += 0.5 * x[:, 0]
    y = (x @ [[1.0], [-2.0], [0.5]] + rng.normal(size=(60, 1))).astype("f")
    precision = x.T @ x + np.eye(3) / 0.7**2
    layer = layers.MeanFieldDense(
        1,
        use_bias=False,
        estimator="local",
        prior=bdl.priors.Normal(0.7),
        rho_initializer=keras.initializers.Constant(-2.0),
        dataset_size=60,
    )
    model = keras.Sequential([keras.Input((3,)), layer])
    steps = 3000
    rate = keras.optimizers.schedules.CosineDecay(0.03, steps)
    model.compile(
        keras.optimizers.Adam(rate),
        bdl.likelihoods.Gaussian(1.0),
        steps_per_execution=100,
    )
    # Each copy draws new noise of the outputs, which averages out.
    copies = np.tile(x, (64, 1)), np.tile(y, (64, 1))
    model.fit(
        tf.data.Dataset.from_tensors(copies).repeat(steps),
        verbose=0,
        shuffle=False,
    )
    q = layer.posteriors["kernel"]
    mean, stddev = np.asarray(q.mean), np.asarray(q.stddev)
    expected = np.sqrt(1 / np.diag(precision))[:, None]
    difference = mean - np.linalg.solve(precision, x.T @ y)
    assert np.abs(difference / expected).max() < 0.02
    np.testing.assert_allclose(stddev, expected, rtol=0.02)

    covariance = np.eye(60) + x @ x.T * 0.7**2
    evidence = multivariate_normal(np.zeros(60), covariance).logpdf(y[:, 0])

    def bound():
        q = layer.posteriors["kernel"]
        mean, stddev = np.asarray(q.mean), np.asarray(q.stddev)
        squares = np.sum((y - x @ mean) ** 2) + np.sum(x**2 @ stddev**2)
        likelihood = -0.5 * squares - 30 * np.log(2 * np.pi)
        return likelihood - float(layer.kl_divergence())

    best = bound()
    assert evidence - 1 < best < evidence
    # Elsewhere the bound is even lower.
    optimum = layer.get_weights()
    for scale in np.geomspace(0.03, 3.0, 20):
        for variable, value in zip(layer.weights, optimum, strict=True):
            variable.assign(value + scale * rng.normal(size=value.shape))
        assert bound() < best


def test_predict_draws_functions_with_the_spread_of_the_weights():
    layer = layers.MeanFieldDense(
        1, use_bias=False, rho_initializer=keras.initializers.Constant(0.0)
    )
    model = bdl.Sequential([keras.Input((3,)), layer])
    model.compile("sgd", "mse")
    p = bdl.predict(model, X, samples=400, keep_samples=True, verbose=0)
    expected = np.log(2) * np.linalg.norm(X, axis=1)
    spread = p.samples[..., 0].std(0)
    assert_moment(spread / expected, 1.0, 1 / np.sqrt(2 * 400))
    # A draw is one function, linear in the inputs.
    weights, *_ = np.linalg.lstsq(X, p.samples[0], rcond=None)
    np.testing.assert_allclose(X @ weights, p.samples[0], atol=1e-5)


@pytest.mark.parametrize("policy", ["mixed_float16", "mixed_bfloat16"])
def test_mixed_precision_trains_in_float32(policy):
    with dtype_policy(policy):
        model = bdl.Model(*network())
        model.compile("adam", "mse")
        logs = model.fit(X, Y, epochs=2, verbose=0).history
    assert np.isfinite(logs["loss"]).all()
    assert {v.dtype for v in model.trainable_variables} == {"float32"}


@pytest.mark.parametrize("kind", ["MeanField", "Radial"])
def test_embedding_equals_keras_with_the_means_or_a_draw(kind):
    means = np.arange(15, dtype="float32").reshape(5, 3)
    cls = getattr(layers, f"{kind}Embedding")
    layer = cls(5, 3, weights=means, dataset_size=10)
    tokens = np.array([[1, 1], [2, 1]])
    np.testing.assert_array_equal(layer(tokens), means[tokens])
    assert not layer.losses
    y = layer(tokens, training=True)
    drawn = layer._forward_pass().drawn["embeddings"].numpy()
    assert np.all(drawn != means)
    np.testing.assert_array_equal(y, drawn[tokens])
    np.testing.assert_allclose(layer.losses, layer.kl_divergence() / 10)
    with pytest.raises(ValueError, match="estimator='flipout'"):
        cls(5, 3, estimator="flipout")


def test_noise_of_a_radial_embedding_has_the_length_of_one_normal_number():
    # The length of the whole table, in units of its scale. The length of a
    # Gaussian would be near 20.
    from scipy.stats import halfnorm
    from scipy.stats import kstest

    layer = layers.RadialEmbedding(
        20, 20, embeddings_initializer="zeros",
        rho_initializer=keras.initializers.Constant(0.0), seed=1,
    )  # fmt: skip
    layer.build()
    draws = [layer.sample_weights(seed)[0][1] for seed in range(500)]
    lengths = [np.linalg.norm(d) / (20 * np.log(2)) for d in draws]
    assert kstest(lengths, halfnorm.cdf).pvalue > 1e-6


def test_layers_refuse_unsupported_arguments():
    with pytest.raises(ValueError, match="estimator='local'"):
        layers.RadialDense(3, estimator="local")
    with pytest.raises(ValueError, match="lora_rank"):
        layers.MeanFieldDense(3, lora_rank=2)


@pytest.mark.parametrize("kind", ["MeanField", "Radial"])
def test_every_weight_starts_with_the_same_standard_deviation(kind):
    layer = getattr(bdl.layers, f"{kind}Dense")(20)
    layer.build((None, 30))
    for posterior in layer.weight_posteriors:
        np.testing.assert_allclose(
            posterior.distribution().variance,
            np.full(posterior.shape, np.log1p(np.exp(-5.0)) ** 2),
            rtol=1e-4,
        )


@pytest.mark.parametrize("kind", ["MeanField", "Radial"])
def test_drawn_weights_have_the_standard_deviation_softplus_rho(kind):
    stddev, draws = 0.3, 2000
    layer = getattr(bdl.layers, f"{kind}Dense")(
        20,
        rho_initializer=keras.initializers.Constant(np.log(np.expm1(stddev))),
        dataset_size=1,
    )
    layer.build((None, 30))
    mean = layer.kernel_mean.numpy()
    squares = [
        np.mean((np.asarray(layer.sample_weights(seed)[0][1]) - mean) ** 2)
        for seed in range(draws)
    ]
    # The square of the length of Radial noise has the variance 2.
    error = stddev**2 * np.sqrt(2 / draws)
    assert_moment(np.mean(squares), stddev**2, error)


def test_truncated_noise_has_the_moments_of_a_truncated_normal():
    from scipy.stats import kstest
    from scipy.stats import truncnorm

    layer = layers.MeanFieldDense(
        5000, use_bias=False, truncation=1.5, dataset_size=1,
        rho_initializer=keras.initializers.Constant(0.0),
        kernel_initializer="zeros",
    )  # fmt: skip
    noise = layer(np.eye(1, dtype="f"), training=True).numpy()[0] / np.log(2)
    assert kstest(noise, truncnorm(-1.5, 1.5).cdf).pvalue > 1e-6


def test_annealing_callbacks_change_the_loss_without_a_new_trace():
    model = bdl.Model(*network())
    model.compile(keras.optimizers.SGD(0.0), "mse")
    callbacks = [
        bdl.callbacks.KLAnnealing(end_epoch=4),
        bdl.callbacks.PretrainMeans(end_epoch=2),
    ]
    logs = model.fit(X, Y, epochs=6, verbose=0, callbacks=callbacks).history
    kl = total_kl(model) / 12
    weights = (np.array(logs["loss"]) - logs["nll"]) / kl
    np.testing.assert_allclose(weights, [0, 0, 0.5, 0.75, 1, 1], atol=1e-5)
    np.testing.assert_allclose(logs["kl"], kl, rtol=1e-5)
    nll = np.mean((model.predict(X, verbose=0) - Y) ** 2)
    np.testing.assert_allclose(logs["nll"][:2], nll, rtol=1e-4)  # no noise
    assert logs["nll"][2] != logs["nll"][1]
    with pytest.raises(ValueError, match="needs a model with variational"):
        plain = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
        plain.compile("sgd", "mse")
        plain.fit(X, Y, verbose=0, callbacks=[bdl.callbacks.KLAnnealing(2)])


def test_annealing_follows_a_schedule_of_steps():
    model = bdl.Model(*network())
    model.compile(keras.optimizers.SGD(0.0), "mse")
    ramp = bdl.schedules.LinearRamp(0.0, 1.0, end_step=4)
    logs = model.fit(
        X, Y, batch_size=12, epochs=6, verbose=0,
        callbacks=[bdl.callbacks.KLAnnealing(schedule=ramp)],
    ).history  # fmt: skip
    weights = (np.array(logs["loss"]) - logs["nll"]) / logs["kl"]
    np.testing.assert_allclose(weights, [0, 0.25, 0.5, 0.75, 1, 1], atol=1e-4)


def test_each_thread_sees_its_own_value():
    layer = MeanFieldDense(1, activation="relu")
    both_inside = threading.Barrier(2, timeout=10)

    def read(value):
        with replaced(layer, {"activation": value}):
            both_inside.wait()
            found = layer.activation
            both_inside.wait()
        return found, layer.activation.__name__

    with ThreadPoolExecutor(2) as pool:
        found = list(pool.map(read, ("first", "second")))
    assert found == [("first", "relu"), ("second", "relu")]
    assert layer.activation.__name__ == "relu"


def test_each_replica_has_its_divergence_once_when_replicas_interleave(
    mirrored,
):
    # Without data terms, the loss is the KL, and so are its gradients.
    x = np.random.default_rng(0).normal(size=(8, 3)).astype("float32")
    with mirrored.scope():
        model = bdl.Sequential(
            [
                keras.Input((3,)),
                layers.MeanFieldDense(4),
                keras.layers.BatchNormalization(synchronized=True),
                layers.MeanFieldDense(1),
            ]
        )
        model.compile(keras.optimizers.SGD(8.0), lambda y, p: 0.0 * (y - p))
    variational = model.layers[0], model.layers[2]
    kl = sum(float(layer.kl_divergence()) for layer in variational)
    means = [np.asarray(layer.kernel_mean) for layer in variational]
    logs = model.fit(x, x[:, :1], batch_size=8, verbose=0).history
    np.testing.assert_allclose(logs["kl"], kl / 8, rtol=1e-5)
    np.testing.assert_allclose(logs["loss"], kl / 8, rtol=1e-5)
    # The gradient of `mean^2 / 2 / N`, times a rate of N.
    for layer, mean in zip(variational, means, strict=True):
        np.testing.assert_allclose(layer.kernel_mean, 0 * mean, atol=1e-6)
