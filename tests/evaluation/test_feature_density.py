import keras
import numpy as np
import pytest
import sklearn.discriminant_analysis
import tensorflow as tf

from keras_bdl.evaluation import FeatureDensity

RNG = np.random.default_rng(0)
X = RNG.normal(size=(90, 3)).astype("float32") + 1.0
Y = np.repeat([0, 1, 3], 30)  # no example of class 2


@pytest.fixture(scope="module")
def model():
    keras.utils.set_random_seed(0)
    dense = keras.layers.Dense
    return keras.Sequential(
        [
            keras.Input((3,)),
            dense(3, activation="tanh", name="hidden"),
            dense(4, name="logits"),
            keras.layers.Softmax(),
        ]
    )


def hidden(model, x):
    return np.asarray(model.layers[0](x), "float64")


def test_score_is_the_distance_to_the_nearest_class(model):
    h = hidden(model, X)
    fit = sklearn.discriminant_analysis.LinearDiscriminantAnalysis(
        solver="lsqr", store_covariance=True
    ).fit(h, Y)
    x_new = RNG.normal(size=(7, 3)).astype("float32")
    inverse = np.linalg.inv(fit.covariance_)
    away = hidden(model, x_new)[:, None] - fit.means_
    expected = np.einsum("nki,ij,nkj->nk", away, inverse, away).min(1)
    for layer in (None, "hidden", model.layers[0]):
        density = FeatureDensity(model, layer, jitter=0.0)
        # 90 inputs in batches of 40 leave a smaller last batch.
        actual = density.fit(X, Y, batch_size=40).score(x_new)
        np.testing.assert_allclose(actual, expected, rtol=2e-3)


def test_labels_may_be_one_hot_or_in_the_data(model):
    expected = FeatureDensity(model).fit(X, Y).score(X)
    one_hot = FeatureDensity(model).fit(X, np.eye(4)[Y]).score(X)
    data = tf.data.Dataset.from_tensor_slices((X, Y)).batch(32)
    batches = FeatureDensity(model).fit(data).score(data)
    np.testing.assert_allclose(one_hot, expected)
    np.testing.assert_allclose(batches, expected, rtol=2e-3)


def test_constant_feature_needs_jitter(model):
    def constant():
        inputs = keras.Input((3,))
        x = keras.layers.Concatenate(name="both")([inputs, 0 * inputs])
        return keras.Model(inputs, keras.layers.Dense(2)(x))

    with pytest.raises(ValueError, match="larger `jitter`.*90 inputs"):
        FeatureDensity(constant(), jitter=0.0).fit(X, Y)
    known = FeatureDensity(constant()).fit(X, Y).score(X)
    np.testing.assert_allclose(known.mean(), 3.0, rtol=0.5)


def test_wrong_use_is_refused(model):
    with pytest.raises(ValueError, match="before `score`"):
        FeatureDensity(model).score(X)
    with pytest.raises(ValueError, match="`layer` must be a layer.*hidden"):
        FeatureDensity(model, "pool")
    with pytest.raises(ValueError, match="90 inputs"):
        FeatureDensity(model).fit(X, Y.repeat(2))
    with pytest.raises(ValueError, match="integers of at least 0.*-1"):
        FeatureDensity(model).fit(X, Y - 1)
    with pytest.raises(ValueError, match="the shape that the model reads"):
        FeatureDensity(model).fit(X, Y).score(X[:, :2])
    with pytest.raises(ValueError, match="`y` must be given"):
        FeatureDensity(model).fit(X)


def test_features_lie_inside_a_nested_model_and_before_a_normalisation(model):
    nested = keras.Sequential(
        [keras.Input((3,)), model, keras.layers.BatchNormalization()]
    )
    expected = FeatureDensity(model).fit(X, Y).score(X)
    found = FeatureDensity(nested).fit(X, Y).score(X)
    np.testing.assert_allclose(found, expected, rtol=1e-5)
