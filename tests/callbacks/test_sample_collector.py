import functools

import keras
import numpy as np
import pytest

import keras_bdl as bdl
from keras_bdl._saving._state_file import read_state
from keras_bdl.callbacks import ChainDiagnostics
from keras_bdl.callbacks import Checkpoint
from keras_bdl.callbacks import EnsembleValidation
from keras_bdl.callbacks import SampleCollector
from keras_bdl.distribute._replicas import assign
from keras_bdl.schedules import CyclicalCosine
from tests.callbacks.paths import Record
from tests.callbacks.paths import copies_of
from tests.helpers import cross_entropy
from tests.saving.killed_writer import Killed as KilledWriter
from tests.saving.killed_writer import killed_at_change

X = np.random.default_rng(0).normal(size=(32, 3)).astype("float32")
Y = (X[:, 0] > 0).astype("int32")
CYCLE = CyclicalCosine(1e-3, cycle_steps=6)  # 8 steps make an epoch


class Killed(Exception):
    pass


class Kill(keras.callbacks.Callback):
    def __init__(self, epoch, batch):
        super().__init__()
        self.at = (epoch, batch)

    def on_epoch_begin(self, epoch, logs=None):
        self.epoch = epoch

    def on_train_batch_end(self, batch, logs=None):
        if (self.epoch, batch) == self.at:
            raise Killed


def make(**compile_args):
    keras.utils.set_random_seed(1)
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)])
    loss = cross_entropy()
    sampler = bdl.ATMC(CYCLE, dataset_size=32)
    model.compile(**{"optimizer": sampler, "loss": loss, **compile_args})
    return model


@functools.cache
def built():
    """Returns the model of `make`, traced once, and its first state."""
    model = make()
    model.optimizer.build(model.trainable_variables)
    return model, copies_of(model)


def made():
    """Returns the model of `make` in its first state, as in a new process."""
    model, values = built()
    assign(values)
    keras.utils.set_random_seed(1)
    return model


def fit(model, *callbacks, epochs=4, **kwargs):
    options = {"batch_size": 4, "epochs": epochs, "verbose": 0, **kwargs}
    model.fit(X, Y, callbacks=list(callbacks), **options)
    return model


def assert_samples(collector, expected):
    posterior = collector.posterior
    assert len(posterior) == collector.num_collected == len(expected)
    for seed, weights in enumerate(expected):
        for a, b in zip(posterior.sample(seed), weights, strict=True):
            np.testing.assert_array_equal(a, b)


def test_last_state_of_each_cycle_from_start_epoch_on_is_a_sample():
    record = Record()
    collector = SampleCollector(every=CYCLE, start_epoch=1)
    fit(made(), record, collector)
    assert_samples(collector, [record.steps[s] for s in (12, 18, 24, 30)])


def test_every_counts_epochs_and_max_samples_keeps_the_latest():
    record = Record()
    collector = SampleCollector(every=2, start_epoch=1, max_samples=2)
    fit(made(), record, collector, epochs=7)
    assert_samples(collector, [record.epochs[e] for e in (4, 6)])


def samples_in(folder):
    return [name for name in folder.names() if name.startswith("sample_")]


def test_max_samples_and_directory_may_change_after_construction(storage):
    collector = SampleCollector(every=CYCLE)
    collector.max_samples, collector.directory = 2, str(storage)
    fit(made(), collector)
    assert collector.num_collected == len(samples_in(storage)) == 2


def test_samples_in_files_equal_samples_in_memory(storage):
    memory = SampleCollector(every=CYCLE)
    disk = SampleCollector(every=CYCLE, max_samples=3, directory=storage)
    model = fit(made(), memory, disk)
    assert memory.num_collected == 5
    assert_samples(disk, [memory.posterior.sample(s) for s in (2, 3, 4)])
    assert len(samples_in(storage)) == 3
    prediction = bdl.predict(model, X, disk.posterior, verbose=0)
    assert prediction.num_samples == 3


def test_steps_skipped_by_loss_scaling_do_not_count():
    scaled = keras.optimizers.LossScaleOptimizer(
        bdl.ATMC(CYCLE, dataset_size=32), initial_scale=2.0**127
    )
    record, collector = Record(), SampleCollector(every=CYCLE)
    model = make(optimizer=scaled, loss_weights=[100.0])
    fit(model, record, collector)
    done = int(scaled.inner_optimizer.iterations.numpy())
    assert 6 < done < 32
    assert_samples(collector, [record.steps[s] for s in range(6, done + 1, 6)])


def run_chain(folder, in_files, *kill):
    """Runs the command of a chain once, and returns its samples and logs."""
    model = made()
    samples = SampleCollector(
        CYCLE, max_samples=2, directory=folder / "samples" if in_files else None
    )
    validation = EnsembleValidation(samples, (X, Y))
    diagnostics = ChainDiagnostics(verbose=0)
    checkpoint = Checkpoint(folder / "state", unit="step")
    callbacks = (samples, validation, diagnostics, checkpoint, *kill)
    fit(model, *callbacks, epochs=3, shuffle=False)
    return samples.posterior, model.history.history


@pytest.fixture(scope="module")
def unkilled_chain(tmp_path_factory):
    return run_chain(tmp_path_factory.mktemp("whole"), False)


@pytest.mark.parametrize("in_files", [False, True], ids=["memory", "files"])
def test_killed_chain_ends_with_the_same_samples_and_logs(
    in_files, storage, unkilled_chain
):
    whole, logs = unkilled_chain
    assert {"posterior_nll", "configurational_temperature"} < set(logs)
    # The four tests kill at every step of an epoch and of a cycle.
    moments = {
        (False, False): (0, 7, 10),
        (True, False): (1, 6, 11, 20),
        (False, True): (21,),
        (True, True): (3, 18),
    }
    for batch in moments[in_files, storage.is_remote]:
        folder = storage / f"killed_{batch}"
        with pytest.raises(Killed):
            run_chain(folder, in_files, Kill(*divmod(batch, 8)))
        resumed, resumed_logs = run_chain(folder, in_files)
        for key in logs:
            np.testing.assert_array_equal(resumed_logs[key], logs[key], key)
        for seed in (0, 1):
            for a, b in zip(
                resumed.sample(seed), whole.sample(seed), strict=True
            ):
                np.testing.assert_array_equal(a, b)


def test_run_killed_after_a_drop_resumes_and_leaves_no_dropped_file(storage):
    def run(directory, *kill):
        samples = SampleCollector(
            every=2,
            max_samples=2,
            directory=directory / "samples",
        )
        validation = EnsembleValidation(samples, (X, Y))
        checkpoint = Checkpoint(directory, every=4)
        model = fit(made(), samples, validation, checkpoint, *kill, epochs=8)
        return samples, model.history.history

    whole, logs = run(storage / "whole")
    with pytest.raises(Killed):
        # Epoch 5 has dropped a sample that the checkpoint lists.
        run(storage / "killed", Kill(6, 0))
    resumed, resumed_logs = run(storage / "killed")
    assert_samples(resumed, [whole.posterior.sample(seed) for seed in (0, 1)])
    np.testing.assert_array_equal(
        resumed_logs["posterior_nll"], logs["posterior_nll"]
    )
    folder = storage / "killed" / "samples"
    last = ["sample_000002.bdl", "sample_000003.bdl"]
    assert samples_in(folder) == last
    # In a bucket, each sample is a file and a pointer to it.
    assert len(folder.names()) == (4 if storage.is_remote else 2)


@pytest.mark.filterwarnings("ignore:`SampleCollector` moved samples")
@pytest.mark.parametrize("storage", ["bucket"], indirect=True)
def test_run_killed_while_it_writes_to_a_bucket_ends_like_an_unkilled_run(
    storage,
):
    def run(name):
        model = made()
        samples = SampleCollector(
            CYCLE, max_samples=2, directory=storage / name / "samples"
        )
        checkpoint = Checkpoint(storage / name)
        fit(model, samples, checkpoint, epochs=4, shuffle=False)
        return samples.posterior, model.get_weights()

    whole, weights = run("whole")
    # A sample is 3 changes, the first checkpoint 3, later ones 4.
    for change in (2, 5, 6, 9, 12, 15):
        name = f"killed_{change}"
        with killed_at_change(change), pytest.raises(KilledWriter):
            run(name)
        posterior, end = run(name)
        for a, b in zip(end, weights, strict=True):
            np.testing.assert_array_equal(a, b)
        for seed in (0, 1):
            for a, b in zip(
                posterior.sample(seed), whole.sample(seed), strict=True
            ):
                np.testing.assert_array_equal(a, b)
        names = (storage / name / "samples").names()
        last = [n for n in names if n.startswith("sample_")]
        assert last[-2:] == ["sample_000003.bdl", "sample_000004.bdl"]
    # Killed before the first checkpoint: the next run begins again.
    old = storage / "killed_5" / "samples" / "old_1" / "sample_000000.bdl"
    assert len(read_state(old)["weights"]) == 2
    posterior.save(storage / "posterior.bdl")
    streamed = bdl.posteriors.load(storage / "posterior.bdl", stream=True)
    np.testing.assert_array_equal(streamed.mean()[0], whole.mean()[0])


def test_wrong_use_is_refused():
    for arguments, match in (
        ({"every": 0}, "`every` must be"),
        ({"every": 1, "unit": "batch"}, "`unit` must be"),
        ({"every": 1, "max_samples": 0}, "`max_samples` must be"),
    ):
        with pytest.raises(ValueError, match=match):
            SampleCollector(**arguments)
    with pytest.raises(ValueError, match="would take nothing"):
        fit(made(), SampleCollector(1, start_epoch=4))
    # Steps 3 and 6 are in the second execution of five.
    with pytest.raises(ValueError, match="must be at most.*cycle of 3 steps"):
        fit(
            make(steps_per_execution=5),
            SampleCollector(3, unit="step", start_epoch=2),
        )
    for collector in (
        SampleCollector(3, start_epoch=2),
        SampleCollector(40, start_epoch=1, unit="step"),
    ):
        with pytest.raises(ValueError, match="would take nothing"):
            fit(made(), collector)
    collector = SampleCollector(3)
    with pytest.raises(RuntimeError, match="has taken no sample"):
        _ = collector.posterior
    fit(made(), collector)
    with pytest.raises(ValueError, match="must be used with one model"):
        fit(make(), collector)


@pytest.mark.parametrize(
    ("at_once", "taken", "late"),
    [
        (3, [6, 14, 19, 24, 30], 2),  # executions of 3, 3 and 2 steps
        (4, [8, 12, 20, 24, 32], 2),
        (5, [8, 13, 21, 24, 32], 3),  # of 5 and 3
        (6, [6, 14, 22, 24, 30], 4),  # of 6 and 2
    ],
)
def test_execution_that_does_not_divide_takes_the_next_state(
    at_once, taken, late
):
    record, collector = Record(), SampleCollector(every=CYCLE)
    model = make(steps_per_execution=at_once)
    said = f"takes samples up to {late} steps after"
    with pytest.warns(UserWarning, match=said) as caught:
        fit(model, record, collector)
        assert_samples(collector, [record.steps[s] for s in taken])
        fit(model, collector, epochs=1)
    assert sum(said in str(w.message) for w in caught) == 1


def test_cycles_of_epochs_end_with_the_short_execution_and_trace_once():
    traces = []

    def counted(y, logits):
        traces.append(1)
        return keras.losses.sparse_categorical_crossentropy(
            y, logits, from_logits=True
        )

    cycle = CyclicalCosine(1e-3, cycle_steps=16)  # two epochs
    paths = []
    for at_once in (1, 3, 100):
        traces.clear()
        record, collector = Record(), SampleCollector(every=cycle)
        model = make(
            optimizer=bdl.ATMC(cycle, dataset_size=32, seed=1),
            loss=counted,
            steps_per_execution=at_once,
        )
        fit(model, record, collector, epochs=2, shuffle=False)
        first = len(traces)
        fit(model, collector, epochs=4, initial_epoch=2, shuffle=False)
        assert len(traces) == first  # no epoch traces again
        assert collector.num_collected == 2
        paths.append(collector.posterior.sample(1))
        for a, b in zip(
            collector.posterior.sample(0), record.steps[16], strict=True
        ):
            np.testing.assert_array_equal(a, b)
    for path in paths[1:]:
        for a, b in zip(path, paths[0], strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-5)


def test_odd_cycle_with_pairs_of_steps_takes_the_first_state_after_it():
    # One step skipped by loss scaling, and Keras shows every second one only.
    scaled = keras.optimizers.LossScaleOptimizer(
        bdl.ATMC(CYCLE, dataset_size=32), initial_scale=2.0**122
    )
    record, collector = Record(), SampleCollector(every=CYCLE)
    model = make(optimizer=scaled, loss_weights=[100.0], steps_per_execution=2)
    fit(model, record, collector)
    assert int(scaled.inner_optimizer.iterations.numpy()) == 31
    assert_samples(collector, [record.steps[s] for s in (7, 13, 19, 25, 31)])


def test_second_fit_of_the_model_adds_its_samples():
    collector, model = SampleCollector(every=CYCLE), make()
    fit(model, collector, epochs=2)
    model.compile(bdl.ATMC(CYCLE, dataset_size=32, seed=1), model.loss)
    fit(model, collector, epochs=2)
    assert collector.num_collected == 4


def test_samples_of_an_earlier_run_are_moved_with_a_warning(storage):
    first = SampleCollector(1, directory=storage)
    model = fit(made(), first, epochs=3)
    old = [first.posterior.sample(seed) for seed in range(3)]
    second = SampleCollector(1, directory=storage)
    with pytest.warns(UserWarning, match="of an earlier run.*3 files"):
        fit(model, second, epochs=2)
    fit(model, second, epochs=2)  # goes on with its own: a warning would raise
    assert len(samples_in(storage)) == 4
    for number, weights in enumerate(old):
        path = storage / "old_1" / f"sample_{number:06d}.bdl"
        for a, b in zip(read_state(path)["weights"], weights, strict=True):
            np.testing.assert_array_equal(a, b)
    with pytest.raises(ValueError, match="Another file has replaced it"):
        first.posterior.sample(2)  # and not that of the other run
