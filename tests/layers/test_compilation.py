import contextlib
import copy
import inspect
import pickle

import keras
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp

import keras_bdl as bdl
from keras_bdl import layers
from keras_bdl._backend import keras_compiles_nothing
from keras_bdl.layers import _variational as variational

SIZE = 256  # SIZE**2 is the smallest compiled size
RNG = np.random.default_rng(0)
X = RNG.normal(size=(20, SIZE)).astype("float32")
Y = X[:, :1]

needs_linux = pytest.mark.skipif(
    not keras_compiles_nothing(), reason="Keras compiles itself"
)


def dense(kind="MeanFieldDense", **kwargs):
    layer = getattr(layers, kind)(SIZE, dataset_size=10, seed=1, **kwargs)
    layer.build((None, SIZE))
    return layer


def network(**kwargs):
    keras.utils.set_random_seed(3)
    layer = layers.MeanFieldDense(SIZE, activation="relu", **kwargs)
    return bdl.Sequential(
        [keras.Input((SIZE,)), layer, layers.MeanFieldDense(1)]
    )


def is_compiled(layer):
    return layer._compiled_draw._functions is not None


PRIORS = {
    "mixture": lambda: bdl.extend.ScaleMixture(1.0, 0.1),
    "stored": lambda: bdl.distributions.Radial(
        np.full((SIZE, SIZE), 0.1, "f"), np.full((SIZE, SIZE), 0.4, "f")
    ),
}


@needs_linux
@pytest.mark.parametrize(
    "kind, estimator, prior",
    [
        ("MeanFieldDense", "local", "mixture"),
        ("RadialDense", "flipout", "stored"),
    ],
)
def test_compiled_draw_is_the_same_with_the_same_derivatives(
    kind, estimator, prior, monkeypatch
):
    def values(compiled):
        layer = dense(
            kind,
            estimator=estimator,
            prior=PRIORS[prior](),
            variational_bias=prior != "stored",
            rho_initializer=keras.initializers.Constant(-2.0),
            kernel_initializer=keras.initializers.RandomNormal(0.1, seed=1),
        )
        variables = [v.value for v in layer.trainable_variables]

        def once(_):
            with tf.GradientTape() as outer:
                with tf.GradientTape() as tape:
                    y = layer(X, training=True)
                    loss = tf.reduce_mean(tf.sin(y)) + layer.losses[0] / SIZE
                gradients = tape.gradient(loss, variables)
                length = sum(tf.reduce_sum(g**2) for g in gradients)
            # Gradients of the gradients: second derivatives.
            return loss, gradients, outer.gradient(length, variables)

        of_variables = [tf.TensorSpec(v.shape) for v in variables]
        types = (tf.TensorSpec(()), of_variables, of_variables)

        @tf.function(autograph=False)
        def run():
            return tf.map_fn(once, tf.range(2), fn_output_signature=types)

        monkeypatch.setattr(
            variational, "worth_compiling",
            variational.worth_compiling if compiled else lambda layer: False,
        )  # fmt: skip
        result = tf.nest.flatten(run())
        assert is_compiled(layer) == compiled
        return [np.asarray(x) for x in result]

    for ours, expected in zip(values(True), values(False), strict=True):
        assert not np.array_equal(ours[0], ours[1])
        scale = np.abs(expected).max()
        np.testing.assert_allclose(ours, expected, rtol=1e-3, atol=1e-4 * scale)


def test_steps_are_equal_with_and_without_compilation():
    losses = {}
    for name, kwargs in {
        "plain": {},
        "eager": {"run_eagerly": True},
        "compiled": {"jit_compile": True},
        "at once": {"steps_per_execution": 2},
    }.items():
        model = network(seed=4)
        model.compile(keras.optimizers.SGD(0.01), "mse", **kwargs)
        logs = model.fit(X, Y, batch_size=5, epochs=2, shuffle=False, verbose=0)
        losses[name] = logs.history["loss"]
    for name, values in losses.items():
        np.testing.assert_allclose(
            values, losses["plain"], rtol=1e-3, err_msg=name
        )


@needs_linux
def test_draw_is_compiled_once_for_batches_of_all_sizes():
    model = network()
    model.compile("adam", "mse")
    model.fit(X, Y, batch_size=8, epochs=2, verbose=0)
    model.fit(X[:5], Y[:5], batch_size=3, verbose=0)
    assert is_compiled(model.layers[0])
    numbers, outputs = model.layers[0]._compiled_draw._functions
    parts = inspect.getclosurevars(outputs).nonlocals
    for function in (numbers, parts["forward"], parts["backward"]):
        assert function.experimental_get_tracing_count() == 1
    # Compiling this layer takes longer than all its draws.
    assert not is_compiled(model.layers[1])


@pytest.mark.parametrize("where", ["eager", "replicas", "small", "tfp", "conv"])
def test_draw_is_not_compiled_where_that_is_slow_or_fails(where, mirrored):
    shape, scope = (SIZE,), contextlib.nullcontext()
    if where == "replicas":
        scope = mirrored.scope()
    with scope:
        layer = layers.MeanFieldDense(SIZE, dataset_size=1)
        if where == "small":
            layer = layers.MeanFieldDense(SIZE - 1, dataset_size=1)
        if where == "tfp":
            layer = layers.MeanFieldDense(
                SIZE, prior=tfp.distributions.Normal(0.0, 1.0), dataset_size=1
            )
        if where == "conv":
            shape = (1, 1, SIZE)
            layer = layers.MeanFieldConv2D(SIZE, 1, dataset_size=1)
        layer.build((None, *shape))
    x = tf.ones((1, *shape))

    def call():
        return layer(x, training=True)

    if where == "eager":
        call()
    elif where == "replicas":
        mirrored.run(tf.function(call))
    else:
        tf.function(call)()
    assert not is_compiled(layer)


def test_nothing_is_compiled_by_a_tensorflow_without_xla_for_cpus(monkeypatch):
    # On a machine without a TPU, TensorFlow for TPUs raises this error.
    def refuse(*_):
        raise tf.errors.NotFoundError(None, None, "no platform Host")

    monkeypatch.setattr(tf, "function", lambda *_, **__: refuse)
    assert not keras_compiles_nothing.__wrapped__()


def test_training_uses_the_new_prior_of_a_large_layer():
    model = network()
    model.compile(keras.optimizers.SGD(0.0), "mse")
    model.fit(X, Y, verbose=0)
    model.layers[0].set_prior(kernel=bdl.priors.Laplace(0.2))
    model.layers[1].posterior_becomes_prior()
    model.compile(keras.optimizers.SGD(0.0), "mse")
    kl = model.fit(X, Y, verbose=0).history["kl"][0]
    expected = sum(float(layer.kl_divergence()) for layer in model.layers)
    assert kl == pytest.approx(expected / len(X), rel=1e-4)


@pytest.mark.filterwarnings("ignore:`export` writes one network")
def test_trained_layer_can_be_saved_exported_pickled_and_copied(tmp_path):
    model = network()
    model.compile("adam", "mse")
    model.fit(X, Y, verbose=0)
    expected = model(X)
    model.save(tmp_path / "model.keras")
    with pytest.warns(UserWarning, match="one network"):
        model.export(tmp_path / "model", verbose=False)
    exported = tf.saved_model.load(str(tmp_path / "model"))
    for other in (
        keras.models.load_model(tmp_path / "model.keras"),
        exported.serve,
        pickle.loads(pickle.dumps(model)),
        copy.deepcopy(model),
    ):
        np.testing.assert_allclose(other(X), expected, atol=1e-6)
    layer = copy.deepcopy(model.layers[0])
    np.testing.assert_allclose(layer(X), model.layers[0](X), atol=1e-6)


def test_resumed_training_equals_uninterrupted_training(tmp_path):
    def train(model, epochs):
        return model.fit(
            X, Y, batch_size=5, epochs=epochs, shuffle=False, verbose=0
        ).history["loss"]

    model = network(seed=4)
    model.compile("adam", "mse")
    train(model, 2)
    model.save(tmp_path / "model.keras")
    expected = train(model, 2)
    resumed = keras.models.load_model(tmp_path / "model.keras")
    np.testing.assert_allclose(train(resumed, 2), expected, rtol=1e-4)
