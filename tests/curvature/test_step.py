import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers

from keras_bdl import curvature
from keras_bdl.extend import curvature_step
from tests.curvature.brute_force import assert_close
from tests.helpers import cross_entropy
from tests.helpers import dtype_policy

EXAMPLES = 6
RNG = np.random.default_rng(0)
IMAGES = RNG.normal(size=(EXAMPLES, 8, 8, 3)).astype("float32")
LABELS = RNG.integers(0, 3, EXAMPLES)
WEIGHTS = np.array([0.5, 2.0, 0.0, 1.0, 3.0, 0.1], "float32")


def build(norm=layers.LayerNormalization, dtype=None):
    model = keras.Sequential(
        [
            keras.Input((8, 8, 3)),
            layers.Conv2D(
                4, 3, 2, "same", activation="tanh", kernel_regularizer="l2"
            ),
            norm(),
            layers.DepthwiseConv2D(2),
            layers.Flatten(),
            layers.Dense(3, dtype=dtype),
        ]
    )
    loss = cross_entropy()
    model.compile(loss=loss)
    return model


def in_graph(model, **kwargs):
    """The step as a function of a batch."""

    def function(x, y, sample_weight=None, due=None):
        found = curvature_step(model, (x, y, sample_weight), due=due, **kwargs)
        return found.gradients, found.squares

    return function


def names_of(model):
    return [v.path for v in model.trainable_variables]


@pytest.mark.parametrize("jit_compile", [False, True])
def test_a_step_in_a_graph_equals_second_moments(jit_compile):
    model = build()
    expected = curvature.second_moments(model, (IMAGES, LABELS, WEIGHTS))
    signature = [
        tf.TensorSpec((None, 8, 8, 3)),
        tf.TensorSpec((None,), tf.int64),
        tf.TensorSpec((None,)),
        tf.TensorSpec((), tf.bool),
    ]
    function = tf.function(in_graph(model), signature, jit_compile=jit_compile)
    batch = IMAGES, LABELS, WEIGHTS
    expected = tf.nest.map_structure(lambda t: t.numpy(), expected)
    assert_close(names_of(model), function(*batch, True), expected)
    gradients, squares = function(*batch, False)
    assert_close(names_of(model), (gradients, expected[1]), expected)
    assert not any(np.any(h) for h in squares)
    assert function.experimental_get_tracing_count() == 1


def test_layers_with_channels_first_compile():
    # TensorFlow has most of them in compiled functions only. The reference
    # are the same layers with the channels last.
    rng = np.random.default_rng(0)
    x = rng.normal(size=(EXAMPLES, 4, 6, 5)).astype("float32")

    def build(first):
        options = {"data_format": f"channels_{'first' if first else 'last'}"}
        axis = 1 if first else -1
        inputs = keras.Input((4, 6, 5))
        given = inputs if first else layers.Permute((2, 3, 1))(inputs)
        outputs = []
        for layer in (
            layers.Conv2D(3, 3, 2, "same", **options),
            layers.Conv2D(4, 2, groups=2, **options),
            layers.Conv2DTranspose(2, 3, 2, **options),
            layers.DepthwiseConv2D(3, **options),
            layers.SeparableConv2D(2, 3, **options),
            layers.BatchNormalization(axis=axis),
            layers.GroupNormalization(2, axis=axis),
        ):
            y = layer(given)
            if not first:
                y = layers.Permute((3, 1, 2))(y)
            outputs.append(layers.Flatten()(y))
        model = keras.Model(inputs, layers.Concatenate()(outputs))
        model.compile(loss="mse")
        return model

    last, first = build(False), build(True)
    y = rng.normal(size=(EXAMPLES, *last.output_shape[1:]))
    first.set_weights(last.get_weights())
    expected = curvature.second_moments(last, (x, y))
    actual = tf.function(in_graph(first), jit_compile=True)(x, y)
    expected = tf.nest.map_structure(lambda t: t.numpy(), expected)
    assert_close(names_of(first), actual, expected)


def test_two_replicas_add_up_to_one_device_with_the_whole_batch(mirrored):
    model = build()
    expected = curvature.second_moments(model, (IMAGES, LABELS, WEIGHTS))
    with mirrored.scope():
        copy = build()
    copy.set_weights(model.get_weights())

    def on_replica(context):
        i = 3 * context.replica_id_in_sync_group
        return tuple(
            tf.constant(a[i : i + 3]) for a in (IMAGES, LABELS, WEIGHTS)
        )

    batch = mirrored.experimental_distribute_values_from_function(on_replica)

    @tf.function
    def summed(batch):
        def run(batch):
            context = tf.distribute.get_replica_context()
            return context.all_reduce("SUM", in_graph(copy)(*batch))

        return mirrored.run(run, (batch,))

    actual = tf.nest.map_structure(
        lambda t: mirrored.experimental_local_results(t)[1], summed(batch)
    )
    expected = tf.nest.map_structure(lambda t: t.numpy(), expected)
    assert_close(names_of(model), actual, expected)


def test_half_precision_is_unscaled_and_nearly_as_exact():
    model = build()
    expected = curvature.second_moments(model, (IMAGES, LABELS))
    with dtype_policy("mixed_float16"):
        half = build(dtype="float32")
    half.set_weights(model.get_weights())
    scale = tf.constant(2.0**10)
    function = tf.function(in_graph(half, loss_scale=scale))
    actual = function(IMAGES, LABELS)
    assert all(t.dtype == tf.float32 for part in actual for t in part)
    expected = tf.nest.map_structure(lambda t: t.numpy(), expected)
    assert_close(names_of(half), actual, expected, tolerance=1e-2)


def test_values_replace_the_weights():
    model, other = build(), build()
    values = [tf.convert_to_tensor(v) for v in other.trainable_variables]
    before = model.get_weights()
    found = curvature_step(model, (IMAGES, LABELS), values=values)
    expected = curvature.second_moments(other, (IMAGES, LABELS))
    for actual, true in zip(
        (found.gradients, found.squares), expected, strict=True
    ):
        for a, b in zip(actual, true, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-7)
    loss = other.compute_loss(IMAGES, LABELS, other(IMAGES))
    np.testing.assert_allclose(found.loss, loss, rtol=1e-6)
    for a, b in zip(model.get_weights(), before, strict=True):
        np.testing.assert_array_equal(a, b)


def test_statistics_of_batch_norm_move_as_in_an_ordinary_step():
    model = build(layers.BatchNormalization)
    twin = build(layers.BatchNormalization)
    twin.set_weights(model.get_weights())
    found = curvature_step(model, (IMAGES, LABELS))
    y_pred = twin(IMAGES, training=True)
    np.testing.assert_allclose(found.y_pred, y_pred, rtol=1e-5)
    for v, w in zip(
        model.non_trainable_variables,
        twin.non_trainable_variables,
        strict=True,
    ):
        np.testing.assert_allclose(v, w, rtol=1e-6)
        assert np.any(v.numpy() != 0.0) and np.any(v.numpy() != 1.0)


def test_dropout_draws_new_masks_and_squares_use_the_same_mask():
    model = keras.Sequential(
        [keras.Input((8, 8, 3)), layers.Dropout(0.5), layers.Flatten()]
    )
    model.add(layers.Dense(3))
    model.compile(loss="mse")
    masks = [
        curvature_step(model, (np.ones_like(IMAGES), np.zeros((EXAMPLES, 3))))
        for _ in range(2)
    ]
    dropped = [found.squares[0].numpy() == 0 for found in masks]
    assert np.any(dropped[0] != dropped[1])


def test_a_step_that_is_not_due_is_an_ordinary_step():
    model = build()
    found = curvature_step(model, (IMAGES, LABELS), statistics="factors")
    function = tf.function(
        lambda due: [
            (s.gradients, [(f.inputs, f.outputs) for f in s.factors])
            for s in [
                curvature_step(
                    model, (IMAGES, LABELS), statistics="factors", due=due
                )
            ]
        ][0]
    )
    for due in (True, False):
        gradients, factors = function(tf.constant(due))
        for a, b in zip(gradients, found.gradients, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6)
        for matrices, f in zip(factors, found.factors, strict=True):
            for a, b in zip(matrices, (f.inputs, f.outputs), strict=True):
                expected = b if due else np.zeros(b.shape)
                np.testing.assert_allclose(a, expected, rtol=1e-4, atol=1e-6)


def test_wrong_statistics_are_refused():
    with pytest.raises(ValueError, match="statistics='hessian'"):
        curvature_step(build(), (IMAGES, LABELS), statistics="hessian")
