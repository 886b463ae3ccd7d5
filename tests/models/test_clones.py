import keras
import numpy as np
import pytest

import keras_bdl as bdl
from tests.helpers import cross_entropy

X = np.random.default_rng(0).normal(size=(8, 3)).astype("float32")
Y = np.arange(8) % 2


def dense(model_class=bdl.Sequential):
    return model_class([keras.Input((3,)), keras.layers.Dense(2)])


@keras.saving.register_keras_serializable("test_cloning")
class Stack(bdl.Sequential):
    """A class without a constructor."""


@keras.saving.register_keras_serializable("test_cloning")
class OneDense(bdl.Model):
    """A class that makes a functional model."""

    def __init__(self, units=2):
        inputs = keras.Input((3,))
        super().__init__(inputs, keras.layers.Dense(units)(inputs))
        self.units = units

    def get_config(self):
        return {"units": self.units}


def functional():
    inputs = keras.Input((3,))
    return bdl.Model(inputs, keras.layers.Dense(2)(dense()(inputs)))


MODELS = {
    "Sequential": (dense, bdl.Sequential),
    "nested": (lambda: bdl.Sequential([functional()]), bdl.Sequential),
    "functional": (functional, bdl.Model),
    "subclass of Sequential": (lambda: dense(Stack), Stack),
    "subclass that makes a functional model": (OneDense, bdl.Model),
    "converted": (lambda: bdl.convert(dense(), "mean_field"), bdl.Sequential),
}


@pytest.mark.parametrize("clone_function", [None, lambda x: type(x).from_config(
    x.get_config())], ids=["Keras's", "given"])  # fmt: skip
@pytest.mark.parametrize("name", MODELS)
def test_clone_has_the_class_and_the_compile_arguments(name, clone_function):
    make, cls = MODELS[name]
    model = make()
    model.compile("sgd", "mse", samples=3)
    clone = keras.models.clone_model(model, clone_function=clone_function)
    assert isinstance(clone, cls)
    assert [type(x) for x in clone._flatten_layers(include_self=False)] == [
        type(x) for x in model._flatten_layers(include_self=False)
    ]
    assert model.compiled and model.samples == clone.samples == 3
    clone.set_weights(model.get_weights())
    np.testing.assert_array_equal(clone(X), model(X))


def test_uncompiled_clone_can_be_trained_by_a_bayesian_method():
    clone = keras.models.clone_model(dense(), keras.Input((3,)))
    assert not clone.compiled
    loss = cross_entropy()
    clone.compile(bdl.VOGN(), loss)
    clone.fit(X, Y, verbose=0)
    posterior = clone.optimizer.posterior(clone)
    assert not posterior.is_point


def test_models_of_keras_are_cloned_as_before():
    plain = dense(keras.Sequential)
    plain.compile("sgd", "mse")
    clone = keras.models.clone_model(plain)
    assert type(clone) is keras.Sequential and clone.compiled
