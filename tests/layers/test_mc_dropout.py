import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_bdl.layers._mc_dropout import MCDropout
from keras_bdl.posteriors import MCDropout as MCDropoutPosterior
from tests.helpers import assert_moment

RATE = 0.2


def identity(**kwargs):
    """Returns its inputs."""
    return keras.layers.Dense(
        1, use_bias=False, kernel_initializer="ones", **kwargs
    )


def test_each_input_is_zero_or_scaled_up_in_training_only():
    x = np.ones((4000, 1), "float32")
    layer = MCDropout(identity(), RATE, seed=3)
    np.testing.assert_array_equal(layer(x), x)
    dropped = np.array(layer(x, training=True))
    np.testing.assert_allclose(np.unique(dropped), [0, 1.25], rtol=1e-6)
    stderr = np.sqrt(RATE * (1 - RATE) / len(x))
    assert_moment(np.mean(dropped == 0), RATE, stderr)
    again = MCDropout(identity(), RATE, seed=3)
    np.testing.assert_array_equal(again(x, training=True), dropped)


def test_each_replica_draws_another_mask(mirrored):
    with mirrored.scope():
        layer = MCDropout(identity(), RATE)
        layer.build((None, 1))
    x = tf.ones((4000, 1))
    masks = mirrored.run(tf.function(lambda: layer(x, training=True)))
    first, second = (
        np.ravel(m) for m in mirrored.experimental_local_results(masks)
    )
    correlation = np.corrcoef(first, second)[0, 1]
    assert_moment(correlation, 0.0, 1 / np.sqrt(len(x)))


def test_config_has_every_argument():
    layer = MCDropout(identity(), RATE, seed=3, name="drop", dtype="bfloat16")
    revived = keras.saving.deserialize_keras_object(
        keras.saving.serialize_keras_object(layer)
    )
    assert type(revived) is MCDropout
    assert revived.get_config() == layer.get_config()
    assert (revived.rate, revived.seed) == (RATE, 3)
    assert revived.dropout.seed == 3
    assert revived.layer.get_config() == layer.layer.get_config()


def test_posterior_turns_dropout_on_also_in_a_saved_model(tmp_path):
    model = keras.Sequential(
        [
            keras.Input((3, 2)),
            MCDropout(keras.layers.Conv1D(4, 2), RATE, name="conv"),
            keras.layers.Flatten(),
            MCDropout(keras.layers.Dense(2), RATE, name="head"),
        ]
    )
    x = np.random.default_rng(0).normal(size=(8, 3, 2)).astype("float32")
    mean = model.predict(x, verbose=0)
    draws = []
    for seed in (0, 1, 0):
        with MCDropoutPosterior().sampled(model, seed):
            draws.append(model.predict(x, verbose=0))
    np.testing.assert_array_equal(draws[0], draws[2])
    assert np.abs(draws[0] - draws[1]).max() > 0
    assert np.abs(draws[0] - mean).max() > 0
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(loaded.predict(x, verbose=0), mean)


def test_precision_and_mask_are_those_of_the_layer():
    layer = MCDropout(identity(dtype="mixed_bfloat16"), RATE)
    assert layer(np.ones((4, 1), "float32"), training=True).dtype == "bfloat16"
    assert layer.layer.kernel.dtype == "float32"
    tokens = keras.layers.Embedding(5, 3, mask_zero=True)(np.array([[1, 0]]))
    outputs = MCDropout(identity(), RATE)(tokens)
    np.testing.assert_array_equal(outputs._keras_mask, [[True, False]])


@pytest.mark.parametrize("rate", [0, 1, -0.1, float("nan")])
def test_bad_rate_is_refused(rate):
    with pytest.raises(
        ValueError, match="`rate` must be a number above 0.0 and below 1"
    ):
        MCDropout(identity(), rate)
