import warnings
from concurrent.futures import ThreadPoolExecutor

import keras
import numpy as np
import pytest
import tensorflow as tf

import keras_bdl as bdl
from keras_bdl._replaced_in_thread import replaced
from keras_bdl.objectives import SampledVI
from keras_bdl.objectives import TaylorVI
from keras_bdl.objectives._hessian_diagonal import exact_moments
from tests.optimizers.variational import cross_entropy

LAYERS = {
    "BatchNormalization": lambda: keras.layers.BatchNormalization(),
    "GroupNormalization": lambda: keras.layers.GroupNormalization(2),
    "LayerNormalization": lambda: keras.layers.LayerNormalization(),
}
X = np.random.default_rng(0).normal(size=(5, 4)).astype("float32")


@pytest.mark.parametrize("name", LAYERS)
def test_canary_keras_takes_moments_from_tf_nn(name):
    calls = []

    def noted(original, *args, **kwargs):
        calls.append(args)
        return original(*args, **kwargs)

    layer = LAYERS[name]()
    layer.build(X.shape)
    with replaced(tf.nn, "moments", noted):
        layer(X, training=True)
    assert calls, (
        f"`{name}` of Keras {keras.__version__} does not call `tf.nn.moments`. "
        "`exact_moments` replaces that function, and no longer helps."
    )


@pytest.mark.parametrize(
    ("dtype", "rtol"),
    [("float16", 1e-3), ("float32", 1e-5), ("float64", 1e-12)],
)
@pytest.mark.parametrize("keepdims", [False, True])
def test_values_are_those_of_tensorflow(dtype, rtol, keepdims):
    x = tf.cast(X, dtype)
    expected = tf.nn.moments(x, [0], keepdims=keepdims)
    with exact_moments():
        found = tf.nn.moments(x, [0], keepdims=keepdims)
    for one, other in zip(found, expected, strict=True):
        assert one.dtype == other.dtype and one.shape == other.shape
        np.testing.assert_allclose(one, other, rtol=rtol)


def second_derivative(x):
    """Returns the Hessian of the variance of a vector."""
    with tf.GradientTape() as outer:
        outer.watch(x)
        with tf.GradientTape() as inner:
            inner.watch(x)
            _, variance = tf.nn.moments(x, [0])
        gradient = inner.gradient(variance, x)
    return outer.jacobian(gradient, x).numpy()


def test_second_derivative_of_the_variance_is_exact_in_this_thread_alone():
    x = tf.constant([1.0, 2.0, 4.0, 8.0], "float64")
    n = len(x)
    exact = 2 / n * (np.eye(n) - np.ones((n, n)) / n)
    original = tf.nn.moments
    with exact_moments(), ThreadPoolExecutor(1) as pool:
        found = second_derivative(x)
        beside = pool.submit(second_derivative, x).result()
    assert tf.nn.moments is original
    np.testing.assert_allclose(found, exact, atol=1e-12)
    np.testing.assert_array_equal(beside, second_derivative(x))


RNG = np.random.default_rng(0)
INPUTS = RNG.normal(size=(6, 4, 4, 1)).astype("float32")
Y = RNG.integers(0, 3, 6)


def train(layers, objective):
    model = bdl.Sequential(
        [
            keras.Input((4, 4, 1)),
            *layers,
            keras.layers.Flatten(),
            keras.layers.Dense(3),
        ]
    )
    model.compile("sgd", cross_entropy(), objective=objective)
    model.fit(INPUTS, Y, verbose=0)
    return model


def test_piecewise_linear_activations_are_named_once():
    layers = [
        keras.layers.Conv2D(2, 3, activation="relu", name="conv"),
        keras.layers.Dense(2, activation="softplus", name="smooth"),
        keras.layers.LeakyReLU(name="leaky"),
    ]
    with pytest.warns(UserWarning, match=r"layers \['conv', 'leaky'\]"):
        model = train(layers, TaylorVI("scalar"))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.make_train_function(force=True)  # traced again
        model.fit(INPUTS, Y, verbose=0)
        train([keras.layers.ReLU()], SampledVI("scalar"))
        train([keras.layers.Activation("gelu")], TaylorVI("scalar"))


def test_operation_without_second_derivative_is_a_clear_error():
    layers = [
        keras.layers.Conv2D(2, 3, activation="softplus"),
        keras.layers.Resizing(4, 4, interpolation="bicubic"),
    ]
    with pytest.raises(ValueError, match=r"second derivative.*ResizeBicubic"):
        train(layers, TaylorVI("scalar"))
    train(layers, SampledVI("scalar"))


class Mistaken(keras.layers.Layer):
    def call(self, x, training=False):
        return {"x": x}["y"] if training else x


def test_error_of_a_layer_is_not_reported_as_a_missing_derivative():
    with pytest.raises(KeyError, match="y"):
        train([Mistaken()], TaylorVI("scalar"))


@pytest.mark.parametrize(
    "layers",
    [
        [keras.layers.Reshape((4, 4)), keras.layers.LSTM(3)],
        [
            keras.layers.Conv2DTranspose(2, 3),
            keras.layers.SeparableConv2D(2, 3, padding="same"),
            keras.layers.DepthwiseConv2D(3),
            keras.layers.MaxPooling2D(),
            keras.layers.Dropout(0.5),
        ],
    ],
    ids=["LSTM", "convolutions"],
)
def test_common_layers_can_be_differentiated_twice(layers):
    model = train(layers, TaylorVI("diagonal", 0.1))
    assert all(np.isfinite(w).all() for w in model.get_weights())
