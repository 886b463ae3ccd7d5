"""Files in buckets, for which `ram://` of TensorFlow stands."""

import contextlib
import functools
import os
import pathlib
import time
import uuid

import keras
import numpy as np
import pytest
import tensorflow as tf

import keras_bdl as bdl
from keras_bdl import callbacks
from keras_bdl import conformal
from keras_bdl import datasets
from keras_bdl import posteriors
from keras_bdl._saving._state_file import read_state
from keras_bdl._saving._state_file import write_state
from keras_bdl._saving._storage_path import StoragePath
from tests.helpers import assert_equal
from tests.saving.killed_writer import Killed
from tests.saving.killed_writer import killed_at_change

gfile = tf.io.gfile
in_bucket = pytest.mark.parametrize("storage", ["bucket"], indirect=True)
OLD, NEW = {"a": 1.0}, {"a": 2.0}


@in_bucket
def test_writer_killed_at_any_change_leaves_the_old_or_the_new_state(
    storage, monkeypatch
):
    found = []
    for k in range(1, 6):
        path = storage / f"{k}.bdl"
        write_state(path, OLD)
        with killed_at_change(k), contextlib.suppress(Killed):
            write_state(path, NEW)
        found.append(read_state(path)["a"])
        # A new process writes again, after the time for abandoned files.
        later = time.time_ns() + 2 * 3600 * 10**9
        with monkeypatch.context() as patch:
            patch.setattr(time, "time_ns", lambda later=later: later)
            write_state(path, OLD)
        assert read_state(path) == OLD
        assert len([n for n in storage.names() if n.endswith(path.name)]) == 2
    # Killed in the new file, in the pointer, before it has its name, and while
    # the old file is removed. The last writer lives.
    assert found == [1.0, 1.0, 1.0, 2.0, 2.0]


@in_bucket
def test_first_writer_killed_between_file_and_pointer_leaves_no_file(
    storage,
):
    path = storage / "a.bdl"
    for k in (1, 2):
        with killed_at_change(k), pytest.raises(Killed):
            write_state(path, NEW)
        assert len(storage.names()) == k - 1
        assert not path.exists()
        with pytest.raises(FileNotFoundError):
            read_state(path)


@in_bucket
def test_rename_that_is_killed_after_it_deleted_the_pointer_loses_nothing(
    storage, monkeypatch
):
    """HDFS deletes the file at the new name before it renames."""

    def rename(old, new, overwrite):
        gfile.remove(new)
        raise Killed

    path = storage / "a.bdl"
    write_state(path, OLD)
    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr(gfile, "rename", rename)
        write_state(path, NEW)
    assert path.exists()
    assert read_state(path) == NEW
    path.unlink()
    assert not path.exists()
    write_state(path, OLD)
    assert read_state(path) == OLD


@in_bucket
def test_two_writers_at_once_leave_the_file_that_the_pointer_names(
    storage, monkeypatch
):
    path, rename = storage / "a.bdl", gfile.rename

    def rename_after_another(*args, **kwargs):
        monkeypatch.setattr(gfile, "rename", rename)
        write_state(path, NEW)
        rename(*args, **kwargs)

    write_state(path, {"a": 0})
    monkeypatch.setattr(gfile, "rename", rename_after_another)
    write_state(path, OLD)
    assert read_state(path) == OLD


@in_bucket
def test_file_that_the_pointer_names_stays_whatever_its_time(
    storage, monkeypatch
):
    path, rename, now = storage / "a.bdl", gfile.rename, time.time_ns()

    def rename_before_another(*args, **kwargs):
        rename(*args, **kwargs)
        monkeypatch.setattr(gfile, "rename", rename)
        with monkeypatch.context() as patch:
            patch.setattr(time, "time_ns", lambda: now - 7200 * 10**9)
            write_state(path, NEW)  # by a machine whose clock is slow

    monkeypatch.setattr(gfile, "rename", rename_before_another)
    write_state(path, OLD)
    assert read_state(path) == NEW


@in_bucket
def test_reader_follows_a_pointer_that_moves_while_it_reads(
    storage, monkeypatch
):
    path, stat = storage / "a.bdl", gfile.stat
    write_state(path, OLD)
    (data,) = (n for n in storage.names() if n.startswith("data-"))

    def stat_after_a_writer(name):
        if name.endswith(data):
            monkeypatch.setattr(gfile, "stat", stat)
            write_state(path, NEW)
        return stat(name)

    monkeypatch.setattr(gfile, "stat", stat_after_a_writer)
    assert read_state(path) == NEW


@in_bucket
def test_pointer_without_its_file_is_explained(storage):
    write_state(storage / "a.bdl", OLD)
    (data,) = (n for n in storage.names() if n.startswith("data-"))
    gfile.remove(storage / data)
    with pytest.raises(FileNotFoundError, match=f"{data}.*must lie beside"):
        read_state(storage / "a.bdl")


def test_files_downloaded_from_a_bucket_and_uploaded_to_it_are_read(tmp_path):
    bucket = StoragePath(f"ram://bucket/{uuid.uuid4().hex}")
    write_state(bucket / "a.bdl", OLD)
    for name in bucket.names():
        gfile.copy(bucket / name, tmp_path / name)
    assert read_state(tmp_path / "a.bdl") == OLD
    write_state(tmp_path / "b.bdl", NEW)
    gfile.copy(tmp_path / "b.bdl", bucket / "b.bdl")
    assert read_state(bucket / "b.bdl") == NEW
    write_state(bucket / "b.bdl", OLD)  # over a file that is no pointer
    assert read_state(bucket / "b.bdl") == OLD
    assert len(bucket.names()) == 4


@in_bucket
def test_failure_of_the_network_is_not_called_damage(storage, monkeypatch):
    class Lost(gfile.GFile):
        def read(self, n=-1):
            raise tf.errors.UnavailableError(None, None, "no route")

    write_state(storage / "a.bdl", OLD)
    monkeypatch.setattr(gfile, "GFile", Lost)
    with pytest.raises(ConnectionError, match="could not reach.*no route"):
        read_state(storage / "a.bdl")


@in_bucket
def test_failure_of_an_upload_names_the_file_and_keeps_the_old_one(
    storage, monkeypatch
):
    class Full(gfile.GFile):
        def write(self, content):
            raise tf.errors.ResourceExhaustedError(None, None, "quota")

    write_state(storage / "a.bdl", OLD)
    with monkeypatch.context() as patch:
        patch.setattr(gfile, "GFile", Full)
        with pytest.raises(OSError, match="quota.*was not written.*a.bdl'$"):
            write_state(storage / "a.bdl", NEW)
    assert read_state(storage / "a.bdl") == OLD


@in_bucket
def test_only_files_of_a_dead_writer_are_removed(storage, monkeypatch):
    path = storage / "a.bdl"
    form = "data-{:020d}-9-0123abcd.{}".format
    second = 10**9
    now = time.time_ns()
    living = storage / form(now - 60 * second, "a.bdl")
    dead = storage / form(now - 7200 * second, "a.bdl")
    other = storage / form(now - 7200 * second, "b.bdl")
    for file in (living, dead, other):
        file.write_text("some")
    write_state(path, OLD)
    assert living.exists() and other.exists() and not dead.exists()


@functools.cache
def model():
    made = bdl.Sequential([keras.Input((2,)), keras.layers.Dense(2)])
    made.compile("sgd", bdl.likelihoods.Gaussian(1.0))
    return made


def average():
    ensemble = posteriors.Ensemble([model().get_weights()])
    return bdl.PosteriorPredictive(model(), ensemble)


TAKERS = {
    "Checkpoint": callbacks.Checkpoint,
    "SampleCollector": lambda p: callbacks.SampleCollector(1, directory=p),
    "posterior.save": lambda p: posteriors.Ensemble([[np.ones(2)]]).save(p),
    "posteriors.load": posteriors.load,
    "conformal.save": lambda p: conformal.LAC().save(p),
    "conformal.load": conformal.load,
    "write_state": lambda p: write_state(p, OLD),
    "read_state": read_state,
    "Model.save": lambda p: model().save(p),
    "Model.save_weights": lambda p: model().save_weights(p),
    "Model.export": lambda p: model().export(p),
    "PosteriorPredictive.save": lambda p: average().save(p),
    "PosteriorPredictive.export": lambda p: average().export(p),
    "datasets.load": lambda p: datasets.load("cifar10", data_dir=p),
}


@pytest.mark.parametrize("name", TAKERS)
@pytest.mark.parametrize(
    "path",
    [
        "s3://bucket/a",
        "memory://a",
        pathlib.Path("gs://bucket/a"),
        os.path.abspath("gs://bucket/a"),
    ],
    ids=str,
)
def test_path_that_cannot_be_served_is_refused_in_one_sentence(
    name, path, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    if name == "conformal.save":
        monkeypatch.setattr(conformal.LAC, "get_state", lambda self: OLD)
    with pytest.raises(ValueError, match="^`path` ") as error:
        TAKERS[name](path)
    sentence, _, received = str(error.value).partition(" Received: ")
    assert sentence.count(". ") == 0 and received
    assert not os.listdir(tmp_path)


def test_models_are_saved_and_exported(storage):
    model().save(storage / "model.keras")
    loaded = keras.models.load_model(str(storage / "model.keras"))
    assert_equal(loaded.get_weights(), model().get_weights())
    model().save_weights(storage / "model.weights.h5")
    loaded.set_weights([0 * w for w in loaded.get_weights()])
    loaded.load_weights(str(storage / "model.weights.h5"))
    assert_equal(loaded.get_weights(), model().get_weights())
    model().export(storage / "served", verbose=False)
    served = tf.saved_model.load(str(storage / "served"))
    x = np.ones((1, 2), "float32")
    np.testing.assert_allclose(served.serve(x), model()(x), rtol=1e-6)


def test_scheme_file_and_a_drive_of_windows_are_local(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_state(f"file://{tmp_path}/a b.bdl", OLD)
    assert read_state(tmp_path / "a b.bdl") == OLD
    assert os.listdir(tmp_path) == ["a b.bdl"]
    assert not StoragePath("c:/a").is_remote
    with pytest.raises(ValueError, match='begin with "file:///"'):
        StoragePath("file://a")


def test_class_does_what_pathlib_does(storage):
    folder = storage / "a" / "b"
    folder.mkdir(parents=True, exist_ok=True)
    folder.mkdir(parents=True, exist_ok=True)
    with pytest.raises(FileExistsError):
        folder.mkdir(parents=True)
    file = folder / "c.txt"
    assert file.name == "c.txt" and file.parent == folder
    assert StoragePath("c.txt").parent == StoragePath(".")
    file.write_text("many words")
    file.write_text("é")
    assert file.exists() and file.read_text() == "é"
    assert folder.names() == ["c.txt"]
    file.unlink()
    file.unlink(missing_ok=True)
    with pytest.raises(FileNotFoundError):
        file.unlink()
    assert not file.exists()


def test_file_moves_with_its_content(storage):
    (storage / "b").mkdir()
    write_state(storage / "a.bdl", OLD)
    (storage / "a.bdl").move_into(storage / "b")
    assert storage.names() == ["b"]
    assert read_state(storage / "b" / "a.bdl") == OLD


def test_a_removed_folder_leaves_nothing(storage):
    folder = storage / "run"
    folder.mkdir()
    with (folder / "state").replaced() as file:
        file.write(b"content")
    (folder / "text").write_text("text")
    folder.remove_folder()
    assert not folder.exists()
    assert not (folder / "state").exists()
