import keras
import numpy as np
import pytest

import keras_bdl as bdl
from keras_bdl import layers

X = np.random.default_rng(0).normal(size=(8, 3)).astype("float32")
Y = X[:, :1]


class TwoHeads(bdl.Model):
    def __init__(self):
        super().__init__()
        self.first = layers.MeanFieldDense(1)
        self.second = layers.MeanFieldDense(1)

    def call(self, inputs, training=None):
        return self.first(inputs, training=training)


@pytest.mark.filterwarnings("ignore:.*does not have a `build")
def test_uncalled_head_adds_no_divergence():
    model = TwoHeads()
    model.compile("sgd", "mse", samples=2)
    model.fit(X, Y, verbose=0, validation_data=(X, Y))
    assert not model.second.built
    logs = model.evaluate(X, Y, verbose=0, return_dict=True)
    kl = float(model.first.kl_divergence()) / len(X)
    assert logs["kl"] == pytest.approx(kl, rel=1e-6)


class Stop(keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        raise KeyboardInterrupt


@pytest.mark.parametrize(
    "until",
    [
        {"end_epoch": 4},
        {"schedule": bdl.schedules.LinearRamp(0.0, 1.0, end_step=9)},
    ],
)
def test_training_after_an_aborted_one_has_the_full_bound(until):
    model = bdl.Sequential([keras.Input((3,)), layers.MeanFieldDense(1)])
    model.compile(keras.optimizers.SGD(0.0), "mse")
    warm_up = [
        bdl.callbacks.KLAnnealing(**until),
        bdl.callbacks.PretrainMeans(),
    ]
    with pytest.raises(KeyboardInterrupt):
        model.fit(X, Y, verbose=0, callbacks=[*warm_up, Stop()])
    logs = model.fit(X, Y, verbose=0).history
    assert logs["kl"][0] > 0
    assert logs["loss"][0] == pytest.approx(logs["nll"][0] + logs["kl"][0])
    mean = np.mean((model.predict(X, verbose=0) - Y) ** 2)
    assert logs["nll"][0] != pytest.approx(mean, rel=1e-6)  # there is noise


def test_prior_from_weights_must_be_a_number_and_prior_no_dictionary():
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
    with pytest.raises(
        ValueError, match="`prior_from_weights` must be a number"
    ):
        bdl.convert(model, "mean_field", prior_from_weights=True)
    with pytest.raises(ValueError, match="`prior` must be `None`"):
        layers.MeanFieldDense(1, prior={"kernel": bdl.priors.Normal(1.0)})
