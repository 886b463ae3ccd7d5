import contextlib
import functools
from typing import NamedTuple

import keras
import numpy as np
import pytest
import tensorflow as tf

import keras_bdl as bdl
from keras_bdl._saving._state_file import read_state
from keras_bdl.callbacks import Checkpoint
from keras_bdl.callbacks._stateful_callback import StatefulCallback
from keras_bdl.distribute._replicas import assign
from tests.callbacks.paths import copies_of
from tests.helpers import dtype_policy

X = np.random.default_rng(0).normal(size=(60, 4)).astype("float32")
Y = X[:, :1] * X[:, 1:2]
EPOCHS = 5


class Path(StatefulCallback):
    """Records the number of optimizer iterations at every third batch."""

    def __init__(self):
        super().__init__()
        self.seen = []

    def on_train_batch_end(self, batch, logs=None):
        iterations = int(self.model.optimizer.iterations.numpy())
        if iterations % 3 == 0:
            self.seen.append(iterations)

    def get_state(self):
        return {"seen": np.asarray(self.seen)}

    def set_state(self, state):
        self.seen = state["seen"].tolist()


class Killed(Exception):
    pass


class Kill(keras.callbacks.Callback):
    def __init__(self, epoch, batch):
        super().__init__()
        self.at = (epoch, batch)

    def on_epoch_begin(self, epoch, logs=None):
        self.epoch = epoch

    def on_train_batch_end(self, batch, logs=None):
        if (self.epoch, batch) >= self.at:
            raise Killed


class KillAtEpochEnd(keras.callbacks.Callback):
    def __init__(self, epoch):
        super().__init__()
        self.at = epoch

    def on_epoch_end(self, epoch, logs=None):
        if epoch == self.at:
            raise Killed


class Stop(keras.callbacks.Callback):
    """Stops in the third epoch and counts epochs in an attribute."""

    def __init__(self):
        super().__init__()
        self.count = 0

    def on_epoch_end(self, epoch, logs=None):
        self.count += 1
        self.model.stop_training = self.count == 3


def make(model_class=bdl.Sequential, compile=None):
    keras.utils.set_random_seed(7)
    model = model_class(
        [
            keras.Input((4,)),
            keras.layers.Dense(8),
            keras.layers.BatchNormalization(),
            keras.layers.Dropout(0.5),
            keras.layers.Dense(1),
        ]
    )
    model.compile("adam", "mse", metrics=["mae"], **(compile or {}))
    return model


@functools.cache
def built(make_it):
    """Returns a model that is traced once, and the values of its variables."""
    model = make_it()
    with model.distribute_strategy.scope():
        model.optimizer.build(model.trainable_variables)
    return model, copies_of(model)


def made(make_it=make):
    """Returns the model of `make_it` in its first state.

    A new process has a new model, which is traced for seconds. The tests
    restore the variables in its place. Those with `make` have new models.
    """
    model, values = built(make_it)
    assign(values)
    model.stop_training = False
    keras.utils.set_random_seed(7)
    return model


class Result(NamedTuple):
    """A model after a run of the command, and the values at its end."""

    model: keras.Model
    variables: list
    seen: list
    history: dict
    epoch: list


def run(
    directory,
    killed_at=None,
    model=None,
    x=X,
    fit=None,
    steps=None,
    **checkpoint,
):
    """Runs the command once and returns its `Result`."""
    if steps is not None:
        checkpoint |= {"every": steps, "unit": "step"}
    model = made() if model is None else model
    path = Path()
    callbacks = [path, *checkpoint.get("callbacks", ())]
    callbacks.append(Checkpoint(directory, **checkpoint))
    if killed_at is not None:
        callbacks.append(Kill(*killed_at))
    data = {"x": x, "y": Y, "batch_size": 10} if x is X else {"x": x}
    fit = {
        "epochs": EPOCHS,
        "verbose": 0,
        "callbacks": callbacks,
        **(fit or {}),
    }
    killed = contextlib.nullcontext()
    if killed_at is not None:
        killed = pytest.raises(Killed)
    with killed:
        model.fit(**{**data, **fit})
    history = model.history
    values = [value for _, value in copies_of(model)]
    return Result(model, values, path.seen, history.history, history.epoch)


@pytest.fixture(scope="module")
def unkilled(tmp_path_factory):
    """Returns a function that runs a command once, without a kill.

    The two storages of a test compare with the same run.
    """
    results = {}

    def run_once(name, **arguments):
        if name not in results:
            folder = tmp_path_factory.mktemp("unkilled")
            results[name] = run(folder, **arguments)._replace(model=None)
        return results[name]

    return run_once


def assert_same_end(one, other):
    for u, v in zip(one.variables, other.variables, strict=True):
        np.testing.assert_array_equal(u, v)
    assert one[2:] == other[2:]


@pytest.mark.parametrize(
    "when", [{}, {"every": 2}, {"every": 4, "unit": "step"}], ids=str
)
def test_killed_run_ends_like_an_unkilled_run(when, storage, unkilled):
    # By default each run has a new model, as in a new process.
    model = made if when or storage.is_remote else make
    whole = unkilled("plain")
    directory = storage / "killed"
    for killed_at in [(0, 5), (2, 4), (4, 0)]:
        run(directory, killed_at, model=model(), **when)
    assert_same_end(run(directory, model=model(), **when), whole)


def test_every_counts_epochs_and_the_last_epoch_is_always_saved(storage):
    class Saved(keras.callbacks.Callback):
        def __init__(self):
            super().__init__()
            self.epochs = []

        def on_epoch_end(self, epoch, logs=None):
            path = storage / "latest.bdl"
            saved = read_state(path)["epoch"] if path.exists() else None
            self.epochs.append(saved)

    saved = Saved()
    callbacks = [Checkpoint(storage, every=2), saved]
    made().fit(X, Y, epochs=5, verbose=0, callbacks=callbacks)
    assert saved.epochs == [None, 2, 2, 4, 5]


OPTIONS = {
    "plain keras": lambda: make(keras.Sequential),
    "two steps an execution": lambda: make(compile={"steps_per_execution": 2}),
}


@pytest.mark.parametrize("option", OPTIONS)
def test_killed_run_ends_the_same_with(option, storage, unkilled):
    model = functools.partial(made, OPTIONS[option])
    whole = unkilled(option, model=model(), steps=2)
    for killed_at in [(1, 3), (3, 0)]:
        run(storage / "killed", killed_at, model=model(), steps=2)
    again = run(storage / "killed", model=model(), steps=2)
    assert_same_end(again, whole)


def in_half_precision():
    with dtype_policy("mixed_float16"):
        return make()


def test_loss_scale_is_part_of_the_checkpoint(storage, unkilled):
    model = functools.partial(made, in_half_precision)
    whole = unkilled("half", model=model())
    run(storage / "killed", (3, 0), model=model())
    again = run(storage / "killed", model=model())
    optimizer = again.model.optimizer
    assert isinstance(optimizer, keras.optimizers.LossScaleOptimizer)
    assert_same_end(again, whole)


def test_endless_data_continue_after_the_last_step(storage, unkilled):
    data = tf.data.Dataset.from_tensor_slices((X, Y)).repeat().batch(7)
    args = {"x": data, "fit": {"steps_per_epoch": 4}, "skip_seen_data": True}
    args["fit"]["initial_epoch"] = 1
    whole = unkilled("endless", steps=2, **args)
    for killed_at in [(2, 0), (3, 3)]:
        run(storage / "killed", killed_at, steps=2, **args)
    assert_same_end(run(storage / "killed", steps=2, **args), whole)


def test_finished_run_is_not_repeated_and_can_be_extended(storage, unkilled):
    finished = run(storage)
    with pytest.warns(UserWarning, match="is complete: no epoch was run"):
        again = run(storage)
    assert_same_end(again, finished)
    longer = run(storage, fit={"epochs": EPOCHS + 1})
    assert len(longer.history["loss"]) == EPOCHS + 1
    whole = unkilled("longer", fit={"epochs": EPOCHS + 1})
    assert_same_end(longer, whole)


def test_stopped_run_stays_stopped_and_callbacks_are_restored(storage):
    stopped = run(storage, callbacks=[Stop()])
    assert len(stopped.epoch) == 3
    with pytest.warns(UserWarning, match="is complete: no epoch was run"):
        assert_same_end(run(storage, callbacks=[Stop()]), stopped)
    run(storage / "killed", (2, 0), callbacks=[Stop()])
    again = run(storage / "killed", callbacks=[Stop()])
    assert len(again.epoch) == 3


def test_run_killed_just_before_stopping_stays_stopped(storage):
    kill = KillAtEpochEnd(2)
    callbacks = [Path(), Stop(), Checkpoint(storage, callbacks=[]), kill]
    with pytest.raises(Killed):
        made().fit(X, Y, epochs=EPOCHS, verbose=0, callbacks=callbacks)
    model = made()
    with pytest.warns(UserWarning, match="is complete: no epoch was run"):
        model.fit(X, Y, epochs=EPOCHS, verbose=0, callbacks=callbacks[:3])
    assert model.history.epoch == [0, 1, 2]


def test_callbacks_of_keras_act_as_in_an_unkilled_run(storage, unkilled):
    def memories():
        return [
            keras.callbacks.EarlyStopping(
                "loss", min_delta=0.02, patience=2, restore_best_weights=True
            ),
            keras.callbacks.ReduceLROnPlateau(
                "loss", min_delta=0.05, patience=1
            ),
        ]

    fit = {"epochs": 30}
    whole = unkilled("stopped", fit=fit, callbacks=memories())
    assert len(whole.epoch) < 30
    run(storage / "killed", (2, 3), fit=fit, callbacks=memories())
    again = run(storage / "killed", fit=fit, callbacks=memories())
    assert_same_end(again, whole)


@pytest.fixture(scope="module")
def of_two_replicas(mirrored):
    def make_it():
        with mirrored.scope():
            return make()

    return functools.partial(made, make_it)


def test_copies_of_two_replicas_are_restored_one_by_one(
    of_two_replicas, storage, unkilled
):
    arguments = {"fit": {"epochs": 2}, "steps": 3}
    whole = unkilled("replicas", model=of_two_replicas(), **arguments)
    killed = storage / "killed"
    run(killed, (1, 4), of_two_replicas(), **arguments)
    again = run(killed, model=of_two_replicas(), **arguments)
    assert len(whole.variables) >= 2 * len(again.model.variables)
    for copy, other in zip(again.variables, whole.variables, strict=True):
        np.testing.assert_array_equal(copy, other)
    # Metrics are summed over the replicas in an order that is not fixed.
    for name, values in whole.history.items():
        np.testing.assert_allclose(again.history[name], values, rtol=1e-6)


def test_error_while_steps_are_skipped_leaves_a_model_that_trains(
    storage, unkilled
):
    whole = unkilled("plain")
    run(storage / "killed", (2, 4), steps=4)
    model = run(storage / "killed", (2, 1), steps=4).model
    assert_same_end(run(storage / "killed", model=model, steps=4), whole)


def test_second_fit_of_a_resumed_model_begins_at_its_first_epoch(storage):
    run(storage, (3, 0))
    model = run(storage).model
    assert model.fit(X, Y, epochs=2, verbose=0).epoch == [0, 1]


def test_another_model_raises_an_error_and_does_not_change(storage):
    run(storage)
    other = bdl.Sequential([keras.Input((4,)), keras.layers.Dense(3)])
    other.compile("adam", "mse")
    before = other.get_weights()
    with pytest.raises(ValueError, match=r"has shape \(4, 3\) here"):
        run(storage, model=other)
    for a, b in zip(other.get_weights(), before, strict=True):
        np.testing.assert_array_equal(a, b)


def test_wrong_use_is_refused(tmp_path):
    with pytest.raises(ValueError, match="`every` must be"):
        Checkpoint(tmp_path, every=0)
    with pytest.raises(ValueError, match="`unit` must be"):
        Checkpoint(tmp_path, unit="batch")
    with pytest.raises(ValueError, match="`directory` must be a path.*=None"):
        Checkpoint(None)
    with pytest.raises(ValueError, match="Put it last in the list"):
        made().fit(
            X, Y, verbose=0, callbacks=[Checkpoint(tmp_path / "a"), Path()]
        )
    run(tmp_path / "b")
    model = made()
    before = model.get_weights()
    with pytest.raises(ValueError, match="given the callbacks with which"):
        model.fit(X, Y, verbose=0, callbacks=[Checkpoint(tmp_path / "b")])
    for a, b in zip(model.get_weights(), before, strict=True):
        np.testing.assert_array_equal(a, b)


class Uneven(keras.utils.PyDataset):
    """Batches whose sizes no length tells: 60 examples, not 80."""

    def __len__(self):
        return 4

    def __getitem__(self, index):
        rows = slice((0, 20, 30, 40)[index], (20, 30, 40, 60)[index])
        return X[rows], Y[rows]


def train_uneven(directory, unit="epoch", *callbacks):
    """Trains a new model: a former one would have counted the examples."""
    keras.utils.set_random_seed(1)
    layer = bdl.layers.MeanFieldDense(1, seed=3)
    model = bdl.Sequential([keras.Input((4,)), layer])
    model.compile(bdl.SGLD(1e-3, seed=2), bdl.likelihoods.Gaussian(1.0))
    checkpoint = Checkpoint(directory, unit=unit)
    callbacks = [*callbacks, checkpoint]
    model.fit(Uneven(), epochs=4, shuffle=False, verbose=0, callbacks=callbacks)
    return model


@pytest.fixture(scope="module")
def counted_to_the_end(tmp_path_factory):
    with pytest.warns(UserWarning, match="The first pass over the data has 60"):
        model = train_uneven(tmp_path_factory.mktemp("whole"))
    return model.history.history, model.get_weights()


@pytest.mark.filterwarnings("ignore:The first pass over the data has 60")
@pytest.mark.parametrize(
    "unit, killed", [("step", (0, 2)), ("epoch", (1, 1)), ("step", (3, 2))]
)
def test_a_resumed_run_goes_on_with_the_exact_number_of_examples(
    unit, killed, storage, counted_to_the_end
):
    with contextlib.suppress(Killed):
        train_uneven(storage, unit, Kill(*killed))
    resumed = train_uneven(storage, unit)
    history, weights = counted_to_the_end
    assert resumed.history.history == history
    for one, other in zip(resumed.get_weights(), weights, strict=True):
        np.testing.assert_array_equal(one, other)
    assert resumed.optimizer.dataset_size.counted == 60
    assert resumed.layers[0].dataset_size.counted == 60
