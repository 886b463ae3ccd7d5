import json
import os
import resource
import signal
import tracemalloc
import zipfile

import ml_dtypes
import numpy as np
import pytest
import tensorflow as tf

from keras_bdl._saving._state_file import LazyArray
from keras_bdl._saving._state_file import read_state
from keras_bdl._saving._state_file import write_state

DTYPES = [
    "bool",
    "int8",
    "uint16",
    "int64",
    "float16",
    "float64",
    ">f4",
    "complex64",
    ml_dtypes.bfloat16,
    ml_dtypes.float8_e4m3fn,
]


@pytest.fixture
def path(storage):
    """A path on the disk, and one in a bucket."""
    return storage / "a.state"


@pytest.fixture
def local(tmp_path):
    return tmp_path / "a.state"


def content_path(path):
    """Returns the file with the content: in a bucket, not the pointer."""
    names = [n for n in path.parent.names() if n.endswith(path.name)]
    return path.parent / max(names, key=len)


def read_bytes(path):
    with path.open_to_read() as file:
        return file.read()


def overwrite(path, content):
    """Replaces the bytes of a file, as damage or a truncation does."""
    path = content_path(path)
    tf.io.gfile.remove(path)
    with tf.io.gfile.GFile(path, "wb") as file:
        file.write(content)


def equal(a, b):
    assert type(a) is type(b)
    if isinstance(a, dict):
        assert list(a) == list(b)
        return all(equal(a[k], b[k]) for k in a)
    if isinstance(a, list):
        return len(a) == len(b) and all(map(equal, a, b))
    if isinstance(a, np.ndarray):
        return a.dtype == b.dtype and np.array_equal(a, b)
    return a == b


def test_nested_state_comes_back_with_its_types(path):
    state = {
        "z": [1, True, None, 2.5, float("inf"), "é", 2**70, [], {}],
        "a": {"array": "no array", "dict": {"1": [[np.arange(3)]]}},
        "f": np.asfortranarray(np.arange(6.0).reshape(2, 3)),
        "strided": np.arange(10)[::-3],
        "scalar": np.asarray(3.0),
        "empty": np.zeros((0, 2)),
    }
    write_state(path, state)
    assert equal(read_state(path), state)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("lazy", [False, True])
def test_every_numeric_dtype_comes_back(path, dtype, lazy):
    array = np.arange(6).reshape(2, 3).astype(dtype)
    write_state(path, {"a": array, "scalar": array[0, 1]})
    back = read_state(path, lazy=lazy)
    assert back["a"].dtype == dtype and back["a"].shape == (2, 3)
    np.testing.assert_array_equal(np.asarray(back["a"]), array)
    np.testing.assert_array_equal(np.asarray(back["scalar"]), array[0, 1])


def test_nan_of_numpy_comes_back_as_float(path):
    write_state(path, {"a": np.float64("nan")})
    assert np.isnan(read_state(path)["a"])


def test_lazy_state_can_be_written_again(path):
    state = {"a": [np.arange(3), np.ones(2, ml_dtypes.bfloat16)]}
    write_state(path, state)
    other = path.parent / "b"
    write_state(other, read_state(path, lazy=True))
    assert equal(read_state(other), state)


@pytest.mark.parametrize("other", [{"a": np.ones(3)}, {"b": 1, "a": None}])
def test_lazy_array_of_a_file_replaced_by_another_is_refused(path, other):
    write_state(path, {"a": np.zeros(3)})
    lazy = read_state(path, lazy=True)["a"]
    assert isinstance(lazy, LazyArray)
    write_state(path, other)
    with pytest.raises(ValueError, match="Another file has replaced it"):
        lazy.read()


def test_lazy_array_is_read_from_an_equal_file_in_its_place(path):
    write_state(path, {"a": np.arange(3)})
    lazy = read_state(path, lazy=True)
    write_state(path, lazy)  # replaces the file that it reads
    np.testing.assert_array_equal(lazy["a"].read(), np.arange(3))


def test_lazy_array_of_a_deleted_file_raises_a_clear_error(path):
    write_state(path, {"a": np.zeros(3)})
    lazy = read_state(path, lazy=True)["a"]
    path.unlink()
    with pytest.raises(FileNotFoundError, match="was deleted or moved"):
        lazy.read()


def test_more_lazy_files_than_a_process_may_open_can_be_read(local):
    write_state(local, {"a": np.arange(3)})
    copies = [local.with_suffix(f".{i}") for i in range(3000)]
    for copy in copies:
        os.link(local, copy)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(200, hard), hard))
    try:
        lazy = [read_state(copy, lazy=True)["a"] for copy in copies]
        total = sum(array.read() for array in lazy)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    np.testing.assert_array_equal(total, 3000 * np.arange(3))


def test_neither_writing_nor_lazy_reading_copies_the_arrays(path):
    array = np.zeros((2**10, 2**13)).T
    tracemalloc.start()
    write_state(path, {"a": array})
    lazy = read_state(path, lazy=True)["a"]
    assert tracemalloc.get_traced_memory()[1] < 0.5 * array.nbytes
    lazy.read()
    assert tracemalloc.get_traced_memory()[1] < 1.5 * array.nbytes
    tracemalloc.stop()


@pytest.mark.parametrize(
    ("value", "match"),
    [
        ((1,), r"state\['a'\]\[1\]\['b'\] is tuple"),
        (np.array([None]), r"state\['a'\]\[1\]\['b'\] is an array of .*object"),
        (np.array(["s"]), "array of dtype <U1"),
        ({3: 1}, r"must be strings.* Received: 3 in state\['a'\]\[1\]\['b'\]"),
    ],
)
def test_unsupported_value_is_named_and_nothing_is_written(path, value, match):
    write_state(path, {"old": 1})
    with pytest.raises(TypeError, match=match):
        write_state(path, {"a": [0, {"b": value}]})
    assert read_state(path) == {"old": 1}
    remote = {content_path(path).name}
    assert {*path.parent.names()} == {path.name} | remote


def test_any_damaged_byte_is_refused_or_harmless(path):
    state = {"a": np.arange(5.0), "b": [1, "x"]}
    write_state(path, state)
    whole = read_bytes(path)
    for i in range(len(whole)):
        overwrite(path, whole[:i] + bytes([whole[i] ^ 0x5A]) + whole[i + 1 :])
        try:
            assert equal(read_state(path), state)
        except ValueError as error:
            assert "truncated, damaged" in str(error)


def test_missing_file_is_not_called_damaged(path):
    with pytest.raises(FileNotFoundError):
        read_state(path)


@pytest.mark.parametrize("keep", [0, 10, 200, -1])
def test_truncated_file_is_refused(path, keep):
    write_state(path, {"a": np.arange(100.0)})
    overwrite(path, read_bytes(path)[:keep])
    with pytest.raises(ValueError, match="truncated, damaged.*a.state"):
        read_state(path)


def test_damage_is_found_by_a_lazy_read(path):
    write_state(path, {"a": np.arange(100.0)})
    before = read_state(path, lazy=True)["a"]
    whole = bytearray(read_bytes(path))
    whole[whole.index(np.float64(50.0).tobytes()) + 6] ^= 1
    overwrite(path, bytes(whole))
    for lazy in (before, read_state(path, lazy=True)["a"]):
        with pytest.raises(ValueError, match="truncated, damaged"):
            lazy.read()


def test_other_zip_and_later_version_are_refused(path):
    def write_archive(name, text):
        with path.replaced() as file, zipfile.ZipFile(file, "w") as archive:
            archive.writestr(name, text)

    write_archive("config.json", "{}")
    with pytest.raises(ValueError, match="or of another kind"):
        read_state(path)
    document = {"format": "keras_bdl.state", "version": 99, "state": None}
    write_archive("state.json", json.dumps(document))
    with pytest.raises(ValueError, match="format version 1.*has version 99"):
        read_state(path)


def test_writer_killed_midway_leaves_the_old_file(local):
    write_state(local, {"a": 1})
    child = os.fork()
    if child == 0:
        os.fsync = lambda _: os.kill(os.getpid(), signal.SIGKILL)
        write_state(local, {"a": np.ones(9)})
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -9
    (leftover,) = set(local.parent.iterdir()) - {local}
    assert read_state(local) == {"a": 1}
    os.utime(leftover, times=(0, 0))
    write_state(local, {"a": 2})
    assert os.listdir(local.parent) == [local.name]
    assert read_state(local) == {"a": 2}


def test_two_simultaneous_writers_both_succeed(local, monkeypatch):
    fsync = os.fsync

    def fsync_after_another(descriptor):
        monkeypatch.undo()
        write_state(local, {"a": 2})
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", fsync_after_another)
    write_state(local, {"a": 1})
    assert os.listdir(local.parent) == [local.name]
    assert read_state(local) == {"a": 1}


def test_error_of_a_full_disk_names_the_file(tmp_path):
    path = tmp_path / "state.bdl"
    write_state(path, {"step": 1})
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, before[1]))
    try:
        with pytest.raises(OSError, match="was not written.*state.bdl'$"):
            write_state(path, {"array": np.zeros(1 << 18)})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert read_state(path) == {"step": 1}
    assert os.listdir(tmp_path) == ["state.bdl"]
