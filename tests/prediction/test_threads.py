"""Predictions of several threads that share a model."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import keras
import numpy as np
import pytest

import keras_bdl
from keras_bdl.posteriors import Ensemble
from keras_bdl.posteriors import MCDropout
from keras_bdl.posteriors import Mixture
from tests.helpers import cross_entropy

X = np.random.default_rng(0).normal(size=(24, 4)).astype("float32")
Y = np.arange(24) % 3
THREADS = 8
ROUNDS = 2


def network():
    return keras_bdl.Sequential(
        [
            keras.Input((4,)),
            keras.layers.Dense(8, activation="tanh"),
            keras.layers.Dropout(0.5),
            keras.layers.BatchNormalization(),
            keras.layers.Dense(3),
        ]
    )


def compiled(model, optimizer):
    loss = cross_entropy()
    model.compile(optimizer, loss)
    return model


def fitted(model, optimizer, epochs=2, callbacks=None):
    compiled(model, optimizer)
    model.fit(X, Y, epochs=epochs, verbose=0, callbacks=callbacks)
    return model


@pytest.fixture(scope="module")
def cases():
    """Models and arguments of `keras_bdl.predict`, by the kind of posterior."""
    swag = keras_bdl.SWAG(start_epoch=1)
    shared = fitted(network(), keras.optimizers.SGD(0.1), 5, [swag])
    vogn = fitted(network(), keras_bdl.VOGN(1e-2))
    mean_field = fitted(keras_bdl.convert(network(), "mean_field"), "adam")
    ensemble = Ensemble.from_models([shared, vogn])
    statistics = {"batch_norm_data": X}
    laplace = keras_bdl.fit_laplace(shared, (X, Y), subset="all")
    return {
        "swag": (shared, {"posterior": swag.posterior, **statistics}),
        "vogn": (vogn, {}),
        "mean_field": (mean_field, {}),
        "mc_dropout": (shared, {"posterior": MCDropout()}),
        "ensemble": (shared, {"posterior": ensemble}),
        "laplace": (shared, {"posterior": laplace, **statistics}),
        "mixture": (
            shared,
            {"posterior": Mixture([MCDropout(), ensemble])},
        ),
    }


def predicted(case):
    model, kwargs = case
    if kwargs.get("posterior", True) is not None:
        kwargs = {"samples": 3, **kwargs}
    prediction = keras_bdl.predict(model, X, batch_size=16, verbose=0, **kwargs)
    return prediction.mean, prediction.mutual_information


def test_eight_threads_predict_the_same_as_one_while_a_model_trains(cases):
    models = {id(model): model for model, _ in cases.values()}.values()
    # Seeds of dropout included, which `get_weights` leaves out.
    before = [[np.array(v) for v in model.variables] for model in models]
    kinds = list(cases)
    start = threading.Barrier(THREADS + 1)
    done = threading.Event()

    def predict_all(thread):
        start.wait()
        found = []
        for i in range(ROUNDS * len(kinds)):
            kind = kinds[(i + thread) % len(kinds)]
            found.append((kind, predicted(cases[kind])))
        return found

    def train():
        model = compiled(network(), keras_bdl.VOGN(1e-2))
        start.wait()
        epochs = 0
        while not done.is_set():
            model.fit(X, Y, verbose=0)
            epochs += 1
        return epochs

    with ThreadPoolExecutor(THREADS + 1) as pool:
        training = pool.submit(train)
        results = [pool.submit(predict_all, t) for t in range(THREADS)]
        try:
            found = [pair for result in results for pair in result.result()]
        finally:
            done.set()
    assert training.result() > 1
    assert len(found) == THREADS * ROUNDS * len(kinds)
    expected = {kind: predicted(case) for kind, case in cases.items()}
    for kind, arrays in found:
        for array, single in zip(arrays, expected[kind], strict=True):
            np.testing.assert_array_equal(array, single, err_msg=kind)
    for model, values in zip(models, before, strict=True):
        for variable, value in zip(model.variables, values, strict=True):
            np.testing.assert_array_equal(variable, value)


def trained(meanwhile):
    """Trains a network while `meanwhile(model, done)` runs beside it."""
    keras.utils.set_random_seed(0)
    model = keras.Sequential(
        [
            keras.Input((4,)),
            keras.layers.Dense(8, "tanh", activity_regularizer="l2"),
            keras.layers.Dropout(0.5),
            keras.layers.BatchNormalization(),
            keras.layers.Dense(3),
        ]
    )
    compiled(model, keras.optimizers.SGD(0.1, momentum=0.9))
    done = threading.Event()
    with ThreadPoolExecutor(1) as pool:
        result = pool.submit(meanwhile, model, done)
        try:
            history = model.fit(
                X, Y, batch_size=8, epochs=15, shuffle=False, verbose=0
            )
        finally:
            done.set()
    return model.get_weights(), history.history["loss"], result.result()


def test_training_is_the_same_while_another_thread_predicts():
    def nothing(model, done):
        del model, done

    def predictions(model, done):
        weights = [w + 1.0 for w in model.get_weights()]
        cases = [
            {"posterior": Ensemble([weights])},
            {"posterior": MCDropout()},
            {"posterior": None, "batch_norm_data": X},
        ]
        found = []
        while not done.is_set():
            found.append([predicted((model, kwargs)) for kwargs in cases])
        return [of_ensemble for (of_ensemble, _), *_ in found]

    weights, losses, _ = trained(nothing)
    same_weights, same_losses, found = trained(predictions)
    assert losses == same_losses
    for weight, same in zip(weights, same_weights, strict=True):
        np.testing.assert_array_equal(weight, same)
    for mean in found:
        np.testing.assert_array_equal(mean, found[0])


def test_threads_predict_with_two_replicas(mirrored):
    with mirrored.scope():
        model = fitted(network(), "sgd")
    case = (model, {"posterior": MCDropout()})
    start = threading.Barrier(4)

    def predict_often():
        start.wait()
        return [predicted(case)[0] for _ in range(10)]

    with ThreadPoolExecutor(4) as pool:
        results = [pool.submit(predict_often) for _ in range(4)]
        means = [mean for result in results for mean in result.result()]
    expected, _ = predicted(case)
    for mean in means:
        np.testing.assert_array_equal(mean, expected)


class InterruptedCell(keras.layers.SimpleRNNCell):
    """Runs `interruption` once, between two steps of a sequence."""

    steps = 0

    @staticmethod
    def interruption():
        pass

    def call(self, sequence, states, training=False):
        self.steps += 1
        if self.steps == 2:
            self.interruption()
        return super().call(sequence, states, training=training)


@pytest.mark.parametrize("run_eagerly", [False, True])
def test_recurrent_masks_stay_while_another_thread_predicts(run_eagerly):
    def outputs_of_training(interrupted):
        keras.utils.set_random_seed(0)
        cell = InterruptedCell(5, dropout=0.5, recurrent_dropout=0.5, seed=0)
        model = keras.Sequential(
            [keras.Input((4, 3)), keras.layers.RNN(cell), keras.layers.Dense(3)]
        )
        compiled(model, "sgd")
        model.run_eagerly = run_eagerly
        cell.steps = 0
        with ThreadPoolExecutor(1) as pool:

            def predict_beside():
                prediction = pool.submit(
                    keras_bdl.predict,
                    model,
                    X[:7].repeat(3, 1).reshape(7, 4, 3),
                    posterior=MCDropout(),
                    samples=2,
                    verbose=0,
                )
                prediction.result()

            if interrupted:
                cell.interruption = predict_beside
            return np.asarray(model(X.reshape(8, 4, 3), training=True))

    expected = outputs_of_training(interrupted=False)
    np.testing.assert_array_equal(outputs_of_training(True), expected)


class Counted(keras.layers.Layer):
    """Counts the threads that are in its call at the same time."""

    lock = threading.Lock()
    inside = most = 0

    def call(self, x):
        with self.lock:
            Counted.inside += 1
            Counted.most = max(Counted.most, Counted.inside)
        time.sleep(0.2)  # the other thread gets here, if nothing stops it
        with self.lock:
            Counted.inside -= 1
        return x


def test_threads_trace_a_model_one_after_the_other():
    model = compiled(
        keras.Sequential(
            [
                keras.Input((4,)),
                Counted(),
                keras.layers.Dropout(0.5),
                keras.layers.Dense(3),
            ]
        ),
        "sgd",
    )
    posteriors = [MCDropout(), Ensemble([model.get_weights()])]
    start = threading.Barrier(2)
    Counted.most = 0

    def predict(posterior):
        start.wait()
        return predicted((model, {"posterior": posterior}))

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(predict, posteriors))
    assert Counted.most == 1
