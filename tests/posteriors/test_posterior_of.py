import keras
import numpy as np
import pytest

import keras_bdl as bdl
from keras_bdl.posteriors import Gaussian
from keras_bdl.posteriors import Layerwise
from tests.helpers import assert_equal

X = np.random.default_rng(0).standard_normal((8, 2)).astype("float32")


def fitted(optimizer, layer=None, **kwargs):
    layer = layer or keras.layers.Dense(2)
    model = bdl.Sequential([keras.Input((2,)), layer])
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer, loss, **kwargs)
    model.fit(X, np.arange(8) % 2, verbose=0)
    return model


def test_optimizer_under_loss_scaling_holds_the_posterior():
    optimizer = keras.optimizers.LossScaleOptimizer(bdl.VOGN(1e-2))
    model = fitted(optimizer)
    posterior = bdl.posterior_of(model)
    expected = optimizer.inner_optimizer.posterior(model)
    assert isinstance(posterior, Gaussian) and not posterior.is_point
    assert_equal(posterior.sample(0), expected.sample(0))


def test_optimizer_that_trained_without_noise_holds_a_posterior_too():
    model = fitted(bdl.OGN(1e-2))
    assert not bdl.posterior_of(model).is_point


def test_objective_holds_the_posterior():
    objective = bdl.objectives.TaylorVI(covariance="diagonal")
    model = fitted("sgd", objective=objective)
    expected = objective.posterior(model)
    assert_equal(bdl.posterior_of(model).sample(0), expected.sample(0))


def test_variational_layers_hold_the_posterior():
    model = fitted("sgd", bdl.layers.MeanFieldDense(2))
    assert isinstance(bdl.posterior_of(model), Layerwise)


def test_model_without_a_posterior_is_refused_with_advice():
    with pytest.raises(
        ValueError, match="`model` must hold a posterior.*optimizer=SGD"
    ):
        bdl.posterior_of(fitted("sgd"))
