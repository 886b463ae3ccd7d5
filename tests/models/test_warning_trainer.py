import warnings

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


def test_diverging_training_warns_once():
    model = network(optimizer=keras.optimizers.SGD(1e9), loss="mse")
    with pytest.warns(UserWarning, match="training diverges") as found:
        model.fit(X, np.stack([Y, Y], 1), 4, epochs=4, verbose=0)
    assert len(found) == 1
    assert "optimizer=SGD" in str(found[0].message)


@pytest.mark.parametrize(
    "first, later, warns",
    [(2.0, 19990.0, False), (2.0, 20010.0, True), (1e-9, 9999.0, False),
     (1e6, 9e9, False), (-2.0, 20010.0, True), (2.0, np.inf, True)],
)  # fmt: skip
def test_loss_may_grow_ten_thousandfold(first, later, warns):
    watch = bdl.models.warning_trainer.DivergenceWarning()
    watch.set_model(network())
    watch.on_train_begin()
    watch.on_train_batch_end(0, {"loss": first})
    watch.on_train_batch_end(1, {"loss": 1e30})
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        watch.on_epoch_end(0, {"loss": later})
    assert bool(found) == warns


def test_first_epoch_of_loss_scaling_may_overflow():
    watch = bdl.models.warning_trainer.DivergenceWarning()
    optimizer = keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD())
    watch.set_model(network(optimizer=optimizer))
    watch.on_train_begin()
    watch.on_train_batch_end(0, {"loss": np.nan})
    watch.on_epoch_end(0, {"loss": np.nan})
    with pytest.warns(UserWarning, match="loss of nan in epoch 2"):
        watch.on_epoch_end(1, {"loss": np.nan})


@pytest.mark.parametrize(
    "logs", [{"a": 1.0}, {"loss": [1.0, 2.0]}, {"nll": "text"}]
)
def test_training_step_of_the_user_may_return_any_logs(logs):
    class Model(bdl.Sequential):
        def train_step(self, data):
            return {name: tf.constant(value) for name, value in logs.items()}

    model = Model([keras.Input((3,)), keras.layers.Dense(2)])
    model.compile("adam", LOSS)
    model.fit(X, Y, verbose=0)


def test_rising_kl_of_annealing_gives_no_warning():
    watch = bdl.models.warning_trainer.DivergenceWarning()
    watch.set_model(network())
    watch.on_train_begin()
    watch.on_train_batch_end(0, {"loss": 2.0, "nll": 2.0})
    watch.on_epoch_end(0, {"loss": 1e6, "nll": 1.0})


def test_callbacks_of_the_user_do_not_change():
    model, mine = network(), keras.callbacks.LambdaCallback()
    for given in (mine, [mine], (mine,), None):
        model.fit(X, Y, verbose=0, callbacks=given)
    container = keras.callbacks.CallbackList(
        [mine], add_history=True, model=model
    )
    model.fit(X, Y, verbose=0, callbacks=container)


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
def test_export_warns_of_the_omitted_posterior(name, tmp_path):
    model = POSTERIORS[name]()
    with pytest.warns(UserWarning, match=f"a posterior in {name}$"):
        model.export(tmp_path / "model", verbose=False)


def test_export_is_silent_without_a_posterior(tmp_path):
    model = network(objective=bdl.objectives.MAP())
    model.export(tmp_path / "model", verbose=False)


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
