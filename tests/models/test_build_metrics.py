import keras
import numpy as np
import pytest
import tensorflow as tf

import keras_bdl as bdl
from keras_bdl.models._trainer import build_metrics
from tests.helpers import cross_entropy

X = np.random.default_rng(0).normal(size=(32, 4)).astype("float32")
Y = (X[:, 0] > 0).astype("int32")


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
