"""The Gaussian of the outputs equals `J C J^T` for all kinds of layers."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers

import keras_bdl as bdl
from keras_bdl.posteriors import Gaussian
from keras_bdl.prediction import _links as output_gaussian

RNG = np.random.default_rng(0)
EXAMPLES = 5


def swapped_einsum():
    """The outputs have the axes of the kernel in another order."""
    x = keras.Input((3,))
    return keras.Model(x, layers.EinsumDense("ab,bcd->adc", (4, 2))(x))


def lstm_with_a_mask():
    return keras.Sequential(
        [
            keras.Input((4, 3)),
            layers.Masking(),
            layers.LSTM(3),
            layers.Dense(2),
        ]
    )


def normalised():
    # As many channels as examples.
    return keras.Sequential(
        [
            keras.Input((2, 3)),
            layers.Dense(EXAMPLES, "tanh"),
            layers.BatchNormalization(),
            layers.LayerNormalization(),
            layers.Flatten(),
            layers.Dense(2),
        ]
    )


def shared_layer():
    x = keras.Input((3,))
    shared = layers.Dense(3, "tanh")
    return keras.Model(x, layers.Dense(2)(shared(shared(x))))


@pytest.mark.filterwarnings("ignore:.*BatchNorm statistics")
@pytest.mark.parametrize(
    ("network", "largest"),
    [
        (swapped_einsum, output_gaussian._LARGEST),
        (swapped_einsum, 1),
        (lstm_with_a_mask, output_gaussian._LARGEST),
        (normalised, 1),
        (shared_layer, output_gaussian._LARGEST),
    ],
)
def test_variance_of_all_kinds_of_layers(monkeypatch, network, largest):
    monkeypatch.setattr(output_gaussian, "_LARGEST", largest)
    model = network()
    x = RNG.normal(size=(EXAMPLES, *model.input_shape[1:])).astype("float32")
    x[:2, -1:] = 0.0  # masked
    mean = [np.array(v) for v in model.trainable_variables]
    variance = [RNG.random(m.shape).astype("float32") for m in mean]
    p = bdl.predict(
        model,
        x,
        Gaussian(mean, variance),
        options=bdl.prediction.PredictOptions(
            linearized=True, link="identity", task="regression"
        ),
        verbose=0,
    )
    with tf.GradientTape(persistent=True) as tape:
        outputs = model(x, training=False)
    variables = [v.value for v in model.trainable_variables]
    rows = tape.jacobian(outputs, variables, experimental_use_pfor=False)
    rows = [np.reshape(j, (*outputs.shape, -1)) for j in rows]
    expected = sum(
        np.sum(j**2 * v.ravel(), -1)
        for j, v in zip(rows, variance, strict=True)
    )
    np.testing.assert_allclose(p.variance_between, expected, 1e-3, 1e-6)


@pytest.mark.parametrize(
    "layer, match",
    [
        (lambda: layers.Dense(2), "outputs of a fixed size"),
        (lambda: layers.LSTM(2, dropout=0.5), "leave `link` out"),
    ],
)
def test_what_has_no_gaussian_is_refused(layer, match):
    model = keras.Sequential([keras.Input((None, 3)), layer()])
    mean = [np.array(v) for v in model.trainable_variables]
    posterior = Gaussian(mean, [np.ones(m.shape) for m in mean])
    with pytest.raises(ValueError, match=match):
        bdl.PosteriorPredictive(
            model,
            posterior,
            options=bdl.prediction.PredictOptions(
                linearized=True, link="identity", task="regression"
            ),
        )
