import keras
import numpy as np
import pytest
import tensorflow as tf

import keras_bdl as bdl
from keras_bdl._models._trainer import build_metrics
from tests.helpers import cross_entropy

X = np.random.default_rng(0).normal(size=(32, 4)).astype("float32")
Y = (X[:, 0] > 0).astype("int32")
FEW = X[:8, :3]
TARGETS = X[:8, :1]


class Counting(bdl.Model):
    """Counts the traces of its steps."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.traces = {"train": 0, "test": 0}

    def train_step(self, data):
        self.traces["train"] += 1
        return super().train_step(data)

    def test_step(self, data):
        self.traces["test"] += 1
        return super().test_step(data)


def network():
    inputs = keras.Input((4,))
    return Counting(inputs, keras.layers.Dense(2)(inputs))


def compiled(model, optimizer="adam", **kwargs):
    loss = cross_entropy()
    model.compile(optimizer, loss, metrics=["accuracy"], **kwargs)
    return model


def generator():
    def batches():
        yield from ((X[i : i + 8], Y[i : i + 8]) for i in range(0, 32, 8))

    signature = (
        tf.TensorSpec((None, 4), "float32"),
        tf.TensorSpec((None,), "int32"),
    )
    data = tf.data.Dataset.from_generator(batches, output_signature=signature)
    return data.apply(tf.data.experimental.assert_cardinality(4))


@pytest.mark.parametrize(
    "compile",
    [
        {},
        {"optimizer": bdl.VOGN(0.1)},
        {"optimizer": bdl.ATMC(0.01)},
        {"objective": bdl.objectives.MAP(bdl.priors.Normal(1.0))},
        {"weighted_metrics": ["sparse_categorical_accuracy"]},
    ],
    ids=lambda kwargs: str(sorted(kwargs)),
)
def test_every_step_is_traced_once(compile):
    model = compiled(network(), **compile)
    history = model.fit(
        X, Y, batch_size=8, epochs=2, validation_data=(X, Y), verbose=0
    )
    assert model.traces == {"train": 1, "test": 1}
    found = np.mean(model.predict(X, verbose=0).argmax(-1) == Y)
    assert history.history["val_accuracy"][-1] == pytest.approx(found)


def test_building_metrics_consumes_no_data_of_a_generator():
    model = compiled(network(), keras.optimizers.SGD(0.0))
    data = generator().map(lambda x, y: (x, y, tf.ones_like(y)))
    history = model.fit(data, shuffle=False, verbose=0)
    assert model.traces["train"] == 1
    assert model.optimizer.iterations == 4
    found = np.mean(model.predict(X, verbose=0).argmax(-1) == Y)
    assert history.history["accuracy"][-1] == pytest.approx(found)


def test_targets_of_unknown_rank_are_built_in_the_first_step():
    model = compiled(network())
    unknown = tf.data.Dataset.from_generator(
        generator, output_signature=tf.TensorSpec(None, "int32")
    )
    build_metrics(model, tf.data.Dataset.zip(unknown, unknown))
    assert not model._compile_metrics.built


def test_evaluation_alone_builds_no_optimizer():
    model = compiled(network())
    model.evaluate(X, Y, verbose=0)
    assert model.traces["test"] == 1 and not model.optimizer.built


class TwoHeads(bdl.Model):
    def __init__(self):
        super().__init__()
        self.first = bdl.layers.MeanFieldDense(1)
        self.second = bdl.layers.MeanFieldDense(1)

    def call(self, inputs, training=None):
        return self.first(inputs, training=training)


@pytest.mark.filterwarnings("ignore:.*does not have a `build")
def test_uncalled_head_adds_no_divergence():
    model = TwoHeads()
    model.compile("sgd", "mse", samples=2)
    model.fit(FEW, TARGETS, verbose=0, validation_data=(FEW, TARGETS))
    assert not model.second.built
    logs = model.evaluate(FEW, TARGETS, verbose=0, return_dict=True)
    kl = float(model.first.kl_divergence()) / len(FEW)
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
    model = bdl.Sequential([keras.Input((3,)), bdl.layers.MeanFieldDense(1)])
    model.compile(keras.optimizers.SGD(0.0), "mse")
    warm_up = [
        bdl.callbacks.KLAnnealing(**until),
        bdl.callbacks.PretrainMeans(),
    ]
    with pytest.raises(KeyboardInterrupt):
        model.fit(FEW, TARGETS, verbose=0, callbacks=[*warm_up, Stop()])
    logs = model.fit(FEW, TARGETS, verbose=0).history
    assert logs["kl"][0] > 0
    assert logs["loss"][0] == pytest.approx(logs["nll"][0] + logs["kl"][0])
    mean = np.mean((model.predict(FEW, verbose=0) - TARGETS) ** 2)
    assert logs["nll"][0] != pytest.approx(mean, rel=1e-6)  # there is noise


def test_prior_from_weights_must_be_a_number_and_prior_no_dictionary():
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
    with pytest.raises(
        ValueError, match="`prior_from_weights` must be a number"
    ):
        bdl.convert(model, "mean_field", prior_from_weights=True)
    with pytest.raises(ValueError, match="`prior` must be `None`"):
        bdl.layers.MeanFieldDense(1, prior={"kernel": bdl.priors.Normal(1.0)})
