import keras
import numpy as np
import pytest
import tensorflow as tf

import keras_bdl as bdl
from tests.helpers import cross_entropy

X = np.random.default_rng(0).normal(size=(16, 3)).astype("float32")
Y = np.arange(16) % 2
LOSS = cross_entropy()


def network(layer=keras.layers.Dense, **compile):
    model = bdl.Sequential([keras.Input((3,)), layer(2)])
    model.compile(**{"optimizer": "sgd", "loss": LOSS, **compile})
    return model


POSTERIORS = {
    "VOGN": lambda: network(optimizer=bdl.VOGN()),
    "NoisyKFAC": lambda: network(optimizer=bdl.NoisyKFAC()),
    "IVON": lambda: network(optimizer=bdl.IVON()),
    "TaylorVI": lambda: network(
        objective=bdl.objectives.TaylorVI("fixed", 0.1)
    ),
    "MeanFieldDense": lambda: network(bdl.layers.MeanFieldDense),
    "MCDropout": lambda: bdl.convert(
        network(), "mc_dropout", rate=0.1
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", POSTERIORS)
def test_export_warns_of_the_omitted_posterior(name, monkeypatch):
    monkeypatch.setattr(keras.Model, "export", lambda *_, **__: None)
    model = POSTERIORS[name]()
    with pytest.warns(UserWarning, match=f"a posterior in {name}$"):
        model.export("model")


def test_export_is_silent_without_a_posterior(monkeypatch):
    monkeypatch.setattr(keras.Model, "export", lambda *_, **__: None)
    network(objective=bdl.objectives.MAP()).export("model")


def test_exported_draw_predicts_like_the_draw(tmp_path):
    model = network(optimizer=bdl.VOGN(dataset_size=16, initial_curvature=1.0))
    model.fit(X, Y, verbose=0)
    posterior = model.optimizer.posterior(model)
    with posterior.sampled(model, seed=1):
        expected = model(X)
        model.export(tmp_path / "draw", verbose=False)  # no warning
    assert np.all(np.abs(expected - model(X)) > 1e-4)
    with pytest.warns(UserWarning, match="one network"):
        model.export(tmp_path / "mean", verbose=False)
    served = tf.saved_model.load(tmp_path / "draw")
    np.testing.assert_allclose(served.serve(X), expected, rtol=1e-5, atol=1e-6)
