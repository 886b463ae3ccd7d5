import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_bdl.prediction import reestimate_batch_norm


def statistics_of_batches(x, batch_size, axes=(0,)):
    """Mean and biased variance of each batch, weighted by its examples."""
    batches = [x[i : i + batch_size] for i in range(0, len(x), batch_size)]
    weights = [len(b) for b in batches]
    return (
        np.average([b.mean(axes) for b in batches], axis=0, weights=weights),
        np.average([b.var(axes) for b in batches], axis=0, weights=weights),
    )


def assert_statistics(layer, expected, rtol=1e-5):
    mean, variance = expected
    np.testing.assert_allclose(layer.moving_mean, mean, rtol, 1e-5)
    np.testing.assert_allclose(layer.moving_variance, variance, rtol, 1e-5)


def data(n=23, *shape):
    rng = np.random.default_rng(0)
    scale = rng.uniform(0.5, 3.0, shape)
    return (rng.normal(size=(n, *shape)) * scale + 1.0).astype("float32")


def test_two_layers_get_the_statistics_of_a_numpy_pass():
    first = keras.layers.BatchNormalization(momentum=0.9)
    second = keras.layers.BatchNormalization()
    kernel = keras.layers.Dense(4, activation="tanh")
    model = keras.Sequential([keras.Input((3,)), first, kernel, second])
    first.gamma.assign([2.0, 1.0, 0.5])
    first.moving_variance.assign([7.0, 8.0, 9.0])
    x = data(23, 3)

    reestimate_batch_norm(model, x, batch_size=5)

    assert_statistics(first, statistics_of_batches(x, 5))
    hidden = []
    for i in range(0, 23, 5):
        b = x[i : i + 5]
        z = (b - b.mean(0)) / np.sqrt(b.var(0) + 1e-3) * np.array(first.gamma)
        hidden.append(np.tanh(z @ np.array(kernel.kernel)))
    assert_statistics(second, statistics_of_batches(np.concatenate(hidden), 5))
    assert first.momentum == 0.9


def test_images_are_averaged_over_positions_also_with_channels_first():
    layer = keras.layers.BatchNormalization(axis=1)
    model = keras.Sequential([keras.Input((2, 3, 3)), layer])
    x = data(7, 2, 3, 3)

    reestimate_batch_norm(model, (x, np.zeros(7)), batch_size=4)

    assert_statistics(layer, statistics_of_batches(x, 4, (0, 2, 3)))


def test_a_shared_layer_gets_the_average_of_its_calls():
    layer = keras.layers.BatchNormalization()
    a, b = keras.Input((2,), name="a"), keras.Input((2,), name="b")
    model = keras.Model({"a": a, "b": b}, [layer(a), layer(b)])
    x = {"a": data(8, 2), "b": 3.0 * data(8, 2) + 1.0}

    reestimate_batch_norm(model, x, batch_size=8)

    mean = [(x["a"].mean(0) + x["b"].mean(0)) / 2.0]
    variance = [(x["a"].var(0) + x["b"].var(0)) / 2.0]
    assert_statistics(layer, (mean[0], variance[0]))


class InInference(keras.layers.Wrapper):
    """Never lets its layer train."""

    def call(self, inputs):
        return self.layer(inputs, training=False)


def test_only_layers_that_training_would_update_change():
    inner = keras.Sequential(
        [keras.Input((2,)), keras.layers.BatchNormalization()]
    )
    frozen = keras.layers.BatchNormalization(trainable=False)
    inference = keras.layers.BatchNormalization()
    x = inputs = keras.Input((2,))
    model = keras.Model(inputs, InInference(inference)(frozen(inner(x))))
    before = [np.array(v) for v in frozen.weights + inference.weights]
    x = data(6, 2)

    reestimate_batch_norm(model, x)

    assert_statistics(inner.layers[0], statistics_of_batches(x, 32))
    after = frozen.weights + inference.weights
    np.testing.assert_array_equal(np.stack(before), np.stack(after))


class Counter(keras.layers.Layer):
    """Counts its calls, in a variable and in a metric."""

    def build(self, input_shape):
        self.calls = self.add_weight(shape=(), trainable=False)
        self.metric = keras.metrics.Sum(name="calls")

    def call(self, inputs):
        self.calls.assign_add(1.0)
        self.metric.update_state(1.0)
        return inputs


def test_nothing_else_in_the_model_changes_and_masks_differ_by_batch():
    layer = keras.layers.BatchNormalization()
    dropout = keras.layers.Dropout(0.5, seed=1)
    model = keras.Sequential([keras.Input((50,)), Counter(), dropout, layer])
    own = [id(v) for v in layer.variables]
    others = [v for v in model.variables if id(v) not in own]
    before = [np.array(v) for v in others]

    reestimate_batch_norm(model, np.ones((6, 50), "float32"), batch_size=2)

    for variable, value in zip(others, before, strict=True):
        np.testing.assert_array_equal(variable, value)
    # Of 6 examples with masks of their own the mean takes many values.
    assert len(np.unique(np.round(layer.moving_mean, 4))) > 4


@pytest.mark.parametrize("policy", ["mixed_bfloat16", "mixed_float16"])
def test_mixed_precision_keeps_float32_statistics(policy):
    layer = keras.layers.BatchNormalization(dtype=policy)
    model = keras.Sequential([keras.Input((3,)), layer])
    x = np.round(data(9, 3) * 8) / 8  # exact in half precision

    reestimate_batch_norm(model, x, batch_size=4)

    assert layer.moving_mean.dtype == "float32"
    assert_statistics(layer, statistics_of_batches(x, 4))


def test_xla_and_strategies_give_the_same(mirrored):
    x = data(10, 2)
    with mirrored.scope():
        layer = keras.layers.BatchNormalization(synchronized=True)
        model = keras.Sequential([keras.Input((2,)), layer])
    reestimate_batch_norm(model, x, batch_size=4)
    assert_statistics(layer, statistics_of_batches(x, 4))
    assert layer.synchronized

    layer = keras.layers.BatchNormalization()
    model = keras.Sequential([keras.Input((2,)), layer])
    model.compile(jit_compile=True)
    reestimate_batch_norm(model, x, batch_size=4)
    assert_statistics(layer, statistics_of_batches(x, 4))


def test_replicas_estimate_the_statistics_of_one_device(
    mirrored,
):
    class Sizes(keras.layers.Layer):
        def call(self, x):
            sizes.append(x.shape[0])
            return x

    def estimated(strategy):
        with strategy.scope():
            layers = [keras.layers.BatchNormalization() for _ in range(2)]
            dropout = keras.layers.Dropout(0.5, seed=1)
            layers = [keras.Input((3,)), layers[0], dropout, layers[1], Sizes()]
            model = keras.Sequential(layers)
        sizes.clear()
        # Four batches of 5, one that is left over, and one of 3 examples.
        reestimate_batch_norm(model, data(28, 3), batch_size=5)
        return [v.numpy() for v in model.layers[2].non_trainable_variables]

    sizes = []
    alone = estimated(tf.distribute.get_strategy())
    shared = estimated(mirrored)
    assert sizes.count(5) == 3  # traced on two replicas, and once for the rest
    for a, b in zip(alone, shared, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5)


def test_a_fraction_takes_spaced_examples_or_the_first_batches():
    layer = keras.layers.BatchNormalization()
    model = keras.Sequential([keras.Input((2,)), layer])
    x = data(20, 2)

    reestimate_batch_norm(model, x, fraction=0.25)
    assert_statistics(layer, statistics_of_batches(x[::4], 32))

    dataset = tf.data.Dataset.from_tensor_slices((x, x)).batch(4)
    reestimate_batch_norm(model, dataset, fraction=0.3)
    assert_statistics(layer, statistics_of_batches(x[:8], 4))


@pytest.mark.parametrize(
    "data, kwargs, match",
    [
        (
            np.ones((4, 2)),
            {"fraction": 0.0},
            "`fraction` must be a number above 0",
        ),
        (iter([np.ones((4, 2))]), {}, "every posterior sample can read again"),
        (np.full((4, 2), np.nan), {}, "`data` must not contain NaN"),
        (np.diag([1e30, 1e30]), {}, "must be finite for the weights"),
    ],
)
def test_wrong_data_is_refused_and_changes_nothing(data, kwargs, match):
    layer = keras.layers.BatchNormalization()
    model = keras.Sequential([keras.Input((2,)), layer])
    with pytest.raises(ValueError, match=match):
        reestimate_batch_norm(model, data, **kwargs)
    np.testing.assert_array_equal(layer.moving_mean, [0, 0])
    np.testing.assert_array_equal(layer.moving_variance, [1, 1])


def test_a_wrong_width_is_refused_also_after_right_ones():
    layer = keras.layers.BatchNormalization()
    model = keras.Sequential([keras.Input((2,)), layer])
    reestimate_batch_norm(model, data(5, 2), batch_size=4)
    with pytest.raises(ValueError, match="to have value 2, but received"):
        reestimate_batch_norm(model, data(5, 3), batch_size=4)


def test_an_unbuilt_model_is_refused():
    model = keras.Sequential([keras.layers.BatchNormalization()])
    with pytest.raises(ValueError, match="`model` must be built"):
        reestimate_batch_norm(model, np.ones((2, 2)))
