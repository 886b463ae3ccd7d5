import threading

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers
from keras import ops

import keras_bdl as bdl
from keras_bdl import curvature
from keras_bdl import extend
from keras_bdl.curvature._rule import _RULES
from tests.curvature.brute_force import check
from tests.helpers import cross_entropy

EXAMPLES = 6
RNG = np.random.default_rng(0)
SEQUENCES = RNG.normal(size=(EXAMPLES, 5, 4)).astype("float32")
LABELS = RNG.integers(0, 3, EXAMPLES)


def compiled(*model_layers):
    model = keras.Sequential(
        [
            keras.Input((5, 4)),
            *model_layers,
            layers.Flatten(),
            layers.Dense(3),
        ]
    )
    model.compile(loss=cross_entropy())
    return model


class Scale(layers.Layer):
    def build(self, shape):
        self.scale = self.add_weight(shape=shape[-1:], initializer="ones")

    def call(self, inputs):
        return inputs * self.scale


def test_a_layer_without_a_rule_is_named():
    with pytest.raises(ValueError, match="`Scale` with the weights .*scale"):
        curvature.second_moments(
            compiled(Scale()), (SEQUENCES, LABELS), fallback=False
        )
    with pytest.raises(ValueError, match="`LSTM`.*layer='lstm"):
        curvature.second_moments(
            compiled(layers.LSTM(2)), (SEQUENCES, LABELS), fallback=False
        )


def test_a_frozen_layer_needs_no_rule():
    model = compiled(Scale(trainable=False))
    gradients, _ = curvature.second_moments(model, (SEQUENCES, LABELS))
    assert len(gradients) == 2


@pytest.mark.parametrize(
    "make",
    [
        Scale,
        lambda: layers.TimeDistributed(layers.Dense(2)),
    ],
    ids=["own", "time distributed"],
)
def test_fallback_differentiates_any_layer_example_by_example(make):
    options = {"rows": False, "fallback": True}
    check(lambda: compiled(make()), SEQUENCES, LABELS, **options)


def test_fallback_splits_masks_by_example():
    x = SEQUENCES.copy()
    x[::2, 3:] = 0.0
    options = {"rows": False, "fallback": True}
    check(
        lambda: compiled(layers.Masking(), layers.LSTM(2)), x, LABELS, **options
    )


def test_fallback_refuses_random_layers():
    model = compiled(layers.LSTM(2, dropout=0.5))
    with pytest.raises(ValueError, match="must not draw random numbers"):
        curvature.second_moments(model, (SEQUENCES, LABELS), fallback=True)


def test_a_registered_rule_serves_the_layer_and_its_subclasses():
    @extend.register_rule(Scale)
    class ScaleRule(extend.Rule):
        def weights(self, layer):
            return [layer.scale]

        def per_example(self, layer, inputs, cotangents):
            return [ops.sum(inputs * cotangents, axis=1)]

    class Derived(Scale):
        pass

    class Other(Scale):
        def call(self, inputs):
            return inputs * ops.exp(self.scale)

    try:
        check(lambda: compiled(Derived()), SEQUENCES, LABELS, fallback=False)
        with pytest.raises(ValueError, match="`Other`"):
            curvature.second_moments(
                compiled(Other()), (SEQUENCES, LABELS), fallback=False
            )
    finally:
        _RULES.pop((Scale, False))


class Tied(keras.Model):
    """Uses a weight outside of its layer."""

    def __init__(self, read):
        super().__init__()
        self.dense, self.read = layers.Dense(4), read

    def call(self, x):
        return self.read(self.dense(x), self.dense)


def tied(read):
    model = Tied(read)
    model(SEQUENCES)
    model.compile(loss="mse")
    return model


@pytest.mark.parametrize(
    "read",
    [
        lambda x, dense: ops.matmul(x, ops.transpose(dense.kernel)),
        lambda x, dense: tf.matmul(x, dense.kernel._value),
        lambda x, dense: tf.function(
            lambda t: tf.matmul(t, dense.kernel._value)
        )(x),
    ],
    ids=["by Keras", "outside of Keras", "in a function"],
)
@pytest.mark.parametrize("graph", [False, True])
def test_weights_used_outside_of_their_layer_are_refused(read, graph):
    model = tied(read)
    function = curvature.second_moments
    if graph:
        function = tf.function(function, autograph=False)
    with pytest.raises(ValueError, match="dense/kernel, used"):
        function(model, (SEQUENCES, SEQUENCES))


def test_a_layer_in_a_function_traced_before_is_refused():
    dense = layers.Dense(4)
    dense.build((None, 5, 4))
    traced = tf.function(dense)
    traced(tf.constant(SEQUENCES))

    class Net(keras.Model):
        def __init__(self):
            super().__init__()
            self.dense = dense

        def call(self, x):
            return traced(x)

    model = Net()
    model.compile(loss="mse")
    model(SEQUENCES)
    with pytest.raises(ValueError, match="outside of Keras, or in a"):
        curvature.second_moments(model, (SEQUENCES, SEQUENCES))


def test_a_layer_that_is_not_called_is_refused():
    class Net(Tied):
        def __init__(self):
            super().__init__(lambda x, dense: x)
            self.idle = layers.Dense(2)
            self.idle.build((None, 4))

    model = Net()
    model(SEQUENCES)
    model.compile(loss="mse")
    with pytest.raises(ValueError, match="needs every layer .* to be called"):
        curvature.second_moments(model, (SEQUENCES, SEQUENCES))


@pytest.mark.parametrize("jit_compile", [False, True])
@pytest.mark.parametrize("batch", [None, EXAMPLES])
def test_a_layer_called_on_positions_is_refused(batch, jit_compile):
    class Net(Tied):
        def call(self, x):
            x = self.dense(ops.reshape(x, (-1, 4)))
            return ops.reshape(x, (-1, 5, 4))

    model = Net(None)
    model(SEQUENCES)
    model.compile(loss="mse")
    signature = [tf.TensorSpec((batch, 5, 4))] * 2
    function = tf.function(
        lambda x, y: curvature.second_moments(model, (x, y))[1],
        signature,
        jit_compile=jit_compile,
    )
    # Assertions are no part of compiled functions.
    late = jit_compile and batch is None
    message = "reshape" if late else "whose first axis is the examples"
    with pytest.raises(
        (ValueError, tf.errors.InvalidArgumentError), match=message
    ):
        function(SEQUENCES, SEQUENCES)


def test_positions_are_refused_even_if_as_many_as_examples():
    class Net(keras.Model):
        def __init__(self):
            super().__init__()
            self.positions = layers.Embedding(EXAMPLES, 4)
            self.positions.build((None, EXAMPLES))

        def call(self, x):
            return x + self.positions(ops.arange(EXAMPLES))

    model = Net()
    model.compile(loss="mse")
    x = np.ones((EXAMPLES, EXAMPLES, 4), "float32")
    signature = [tf.TensorSpec((None, EXAMPLES, 4))] * 2
    function = tf.function(
        lambda x, y: curvature.second_moments(model, (x, y))[1], signature
    )
    with pytest.raises(ValueError, match="such as positions.*'embedding"):
        function(x, x)


@pytest.mark.parametrize(
    "reduction", ["sum", "none", "mean_with_sample_weight"]
)
def test_losses_other_than_a_mean_are_refused(reduction):
    model = compiled()
    loss = keras.losses.MeanSquaredError(reduction=reduction)
    with pytest.raises(ValueError, match="must be the mean over the batch"):
        curvature.second_moments(model, (SEQUENCES, LABELS), loss=loss)
    model.compile(loss=[loss])
    with pytest.raises(ValueError, match=f"with reduction='?{reduction}|None"):
        curvature.second_moments(model, (SEQUENCES, LABELS))


def test_a_model_without_a_loss_is_refused():
    model = keras.Sequential([keras.Input((4,)), layers.Dense(1)])
    with pytest.raises(ValueError, match="Compile the model with a loss"):
        curvature.second_moments(model, (np.ones((2, 4)), np.ones((2, 1))))


def test_layers_and_variables_are_left_as_they_were():
    activation = layers.LeakyReLU()
    model = compiled(
        layers.Dense(4, activation=activation),
        layers.BatchNormalization(),
        layers.Dropout(0.5),
    )
    kept = [dict(layer.__dict__) for layer in model._flatten_layers()]
    before = [v.numpy() for v in model.variables]

    def as_before():
        for layer, attributes in zip(
            model._flatten_layers(), kept, strict=True
        ):
            assert "call" not in layer.__dict__
            assert set(layer.__dict__) == set(attributes)
        assert model.layers[0].activation is activation
        for v, old in zip(model.variables, before, strict=True):
            np.testing.assert_array_equal(v, old)

    curvature.second_moments(model, (SEQUENCES, LABELS))
    as_before()
    with pytest.raises(Exception):  # noqa: B017 (whatever the model raises)
        curvature.second_moments(model, (SEQUENCES[:, :2], LABELS))
    as_before()


def test_threads_record_their_own_calls_alone():
    model = compiled(layers.Dense(4, "tanh"))
    expected = curvature.second_moments(model, (SEQUENCES, LABELS))
    results, failures = [], []

    def run():
        try:
            for _ in range(5):
                model(SEQUENCES)
                results.append(
                    curvature.second_moments(model, (SEQUENCES, LABELS))
                )
        except Exception as error:  # to the thread of the test
            failures.append(error)

    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures and len(results) == 20
    for actual in results:
        for a, b in zip(
            tf.nest.flatten(actual), tf.nest.flatten(expected), strict=True
        ):
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-7)


def test_a_keras_bdl_model_has_second_moments():
    plain = compiled(layers.Dense(4))
    ours = bdl.Sequential(plain.layers)
    ours.compile(loss=cross_entropy())
    expected = curvature.second_moments(plain, (SEQUENCES, LABELS))
    actual = curvature.second_moments(ours, (SEQUENCES, LABELS))
    for a, b in zip(
        tf.nest.flatten(actual), tf.nest.flatten(expected), strict=True
    ):
        np.testing.assert_allclose(a, b, rtol=1e-6)
