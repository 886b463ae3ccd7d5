"""Tests each method on a network without a trainable weight."""

import keras
import numpy as np
import pytest

import keras_bdl as bdl
from keras_bdl import objectives
from tests.helpers import cross_entropy

X = np.random.default_rng(0).normal(size=(8, 3)).astype("float32")
Y = np.arange(8) % 2
LOSS = cross_entropy()


def frozen(cls=bdl.Sequential, **compile):
    model = cls([keras.Input((3,)), keras.layers.Dense(2)])
    model.trainable = False
    model.compile(**{"optimizer": "sgd", "loss": LOSS, **compile})
    return model


def fit(model, *callbacks):
    model.fit(X, Y, epochs=4, verbose=0, callbacks=callbacks)


def train(cls=bdl.Sequential, callback=None, **compile):
    fit(frozen(cls, **compile), *([callback] if callback else []))


METHODS = {
    "VOGN": lambda: train(optimizer=bdl.VOGN()),
    "OGN": lambda: train(optimizer=bdl.OGN()),
    "IVON": lambda: train(optimizer=bdl.IVON()),
    "KFAC": lambda: train(optimizer=bdl.KFAC()),
    "NoisyKFAC": lambda: train(optimizer=bdl.NoisyKFAC()),
    "TaylorVI": lambda: train(objective=objectives.TaylorVI("diagonal")),
    "SampledVI": lambda: train(objective=objectives.SampledVI("scalar")),
    "MAP": lambda: train(objective=objectives.MAP()),
    "SWA": lambda: train(keras.Sequential, bdl.SWA(1)),
    "SWAG": lambda: train(keras.Sequential, bdl.SWAG(1)),
    "SampleCollector": lambda: train(
        callback=bdl.callbacks.SampleCollector(every=1, start_epoch=1),
        optimizer=bdl.SGLD(),
    ),
    "ChainDiagnostics": lambda: train(
        callback=bdl.callbacks.ChainDiagnostics(), optimizer=bdl.SGLD()
    ),
    "model": lambda: bdl.fit_laplace(frozen(), (X, Y), prior_precision=1.0),
}


@pytest.mark.parametrize("name", METHODS)
def test_method_refuses_a_frozen_network_by_its_name(name):
    with pytest.raises(ValueError, match=f"^`{name}`.* trainable weight"):
        METHODS[name]()


@pytest.mark.parametrize("cls", [bdl.Sequential, keras.Sequential])
def test_sampler_warns_of_a_frozen_network(cls):
    optimizer = bdl.ATMC(1e-3, dataset_size=8)
    with pytest.warns(UserWarning, match="does not have any trainable weights"):
        train(cls, optimizer=optimizer)


@pytest.mark.parametrize(
    "objective",
    [objectives.TaylorVI("fixed", 0.1, exclude_from_inference="Dense"),
     objectives.MAP(exclude_from_inference="Dense")],
    ids=lambda objective: type(objective).__name__,
)  # fmt: skip
def test_objective_refuses_a_network_with_all_weights_excluded(objective):
    model = frozen(objective=objective)
    model.trainable = True
    with pytest.raises(ValueError, match="fewer layers in `exclude_from"):
        fit(model)


@pytest.mark.parametrize("posterior", [None, bdl.posteriors.MCDropout()])
def test_frozen_layers_are_drawn_in_predictions(posterior):
    layers = [bdl.layers.MeanFieldDense(2)]
    if posterior is not None:
        layers = [keras.layers.Dropout(0.5), keras.layers.Dense(2)]
    model = bdl.Sequential([keras.Input((3,)), *layers])
    model.trainable = False
    model.compile(loss=LOSS)
    prediction = bdl.predict(model, X, posterior, samples=4, verbose=0)
    assert np.all(prediction.mutual_information > 0)
