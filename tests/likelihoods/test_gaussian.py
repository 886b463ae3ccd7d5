import keras
import numpy as np
import pytest
import tensorflow as tf
from scipy.stats import norm

import keras_bdl as bdl
from keras_bdl.likelihoods import Gaussian
from keras_bdl.likelihoods import LearnedStddev
from keras_bdl.likelihoods import mean_and_stddev
from tests.helpers import check_config

RNG = np.random.default_rng(0)
Y = RNG.normal(size=(6, 2)).astype("float32")
MEAN = RNG.normal(size=(6, 2)).astype("float32")
STDDEV = RNG.uniform(0.1, 2.0, size=(6, 2)).astype("float32")


def test_config_has_every_argument():
    check_config(Gaussian, noise_stddev=0.3, reduction="sum", name="other")


def test_loss_equals_the_scipy_density_summed_over_targets():
    expected = -norm.logpdf(Y, MEAN, STDDEV).sum(-1).mean()
    both = np.concatenate([MEAN, STDDEV], -1)
    assert float(Gaussian()(Y, both)) == pytest.approx(expected, rel=1e-5)
    expected = -norm.logpdf(Y, MEAN, 0.3).sum(-1).mean()
    assert float(Gaussian(0.3)(Y, MEAN)) == pytest.approx(expected, rel=1e-5)
    column = -norm.logpdf(Y[:, 0], MEAN[:, 0], 0.3).mean()
    loss = Gaussian(0.3)(Y[:, 0], MEAN[:, :1])
    assert float(loss) == pytest.approx(column, rel=1e-5)


@pytest.mark.parametrize("labels", [(6,), (6, 1)], ids=str)
@pytest.mark.parametrize("outputs", [(6,), (6, 1)], ids=str)
def test_single_target_has_one_value_per_example_with_or_without_axis(
    outputs, labels
):
    y, mean = Y[:, 0], MEAN[:, 0]
    values = Gaussian(0.3).call(
        keras.ops.reshape(y, labels), keras.ops.reshape(mean, outputs)
    )
    expected = -norm.logpdf(y, mean, 0.3)
    np.testing.assert_allclose(values, expected, rtol=1e-5)


def test_activation_keeps_means_and_makes_stddevs_positive():
    x = np.array([[-3.0, 5.0, -200.0, 1.0]], "float32")
    y = np.asarray(mean_and_stddev(keras.ops.convert_to_tensor(x)))
    expected = [[-3.0, 5.0, 1e-3, np.log1p(np.e) + 1e-3]]
    np.testing.assert_allclose(y, expected, rtol=1e-6)
    with pytest.raises(ValueError, match="even number"):
        mean_and_stddev(keras.ops.ones((2, 3)))


def test_predict_takes_the_noise_from_the_loss_also_after_loading(tmp_path):
    model = keras.Sequential(
        [keras.Input((3,)), keras.layers.Dense(4, mean_and_stddev)]
    )
    model.compile("adam", Gaussian())
    x = RNG.normal(size=(6, 3)).astype("float32")
    model.fit(x, Y, verbose=0)
    model.save(tmp_path / "model.keras")
    for one in (model, keras.models.load_model(tmp_path / "model.keras")):
        p = bdl.predict(one, x, verbose=0)
        output = one.predict(x, verbose=0)
        np.testing.assert_allclose(p.mean, output[:, :2], rtol=1e-6)
        np.testing.assert_allclose(
            p.variance_within, output[:, 2:] ** 2, rtol=1e-5
        )


def test_learned_stddev_converges_to_that_of_the_data():
    check_config(LearnedStddev, initial_stddev=0.25)
    y = RNG.normal(3.0, [0.2, 0.6], size=(512, 2)).astype("float32")
    noise = LearnedStddev(0.25)
    model = keras.Sequential([keras.Input((2,)), noise])
    means = np.full_like(y, 3.0)
    expected = np.full((512, 2), 0.25)
    np.testing.assert_allclose(model(means)[:, 2:], expected, rtol=1e-6)
    model.compile(keras.optimizers.Adam(0.2), Gaussian())
    data = tf.data.Dataset.from_tensors((means, y)).repeat(100)
    model.fit(data, shuffle=False, verbose=0)
    output = model.predict(means[:1], verbose=0)
    np.testing.assert_array_equal(output[:, :2], means[:1])
    # The maximum of the likelihood, in closed form.
    expected = np.sqrt(np.mean((y - 3.0) ** 2, axis=0))
    np.testing.assert_allclose(output[0, 2:], expected, rtol=0.01)


def test_conversion_leaves_the_learned_stddev_unchanged():
    model = keras.Sequential(
        [keras.Input((3,)), keras.layers.Dense(1), LearnedStddev(0.5)]
    )
    converted = bdl.convert(model, "mean_field")
    assert isinstance(converted.layers[-1], LearnedStddev)
    np.testing.assert_allclose(converted(Y[:, :1] * [1, 1, 1])[:, 1], 0.5)


def test_wrong_input_is_refused():
    with pytest.raises(ValueError, match="initial_stddev=0"):
        LearnedStddev(0)
    with pytest.raises(ValueError, match="noise_stddev=0"):
        Gaussian(0.0)
    for y, mean in ((Y[:, 0], MEAN), (Y[:, :1], MEAN), (Y, MEAN[:, :1])):
        with pytest.raises(ValueError, match="`y_true` must have the shape"):
            Gaussian(0.3)(y, mean)
    for outputs in (MEAN[:, 0], np.ones((6, 3))):
        with pytest.raises(ValueError, match="on its last axis"):
            Gaussian()(Y[:, :1], outputs)
