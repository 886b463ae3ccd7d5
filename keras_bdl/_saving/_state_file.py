"""Nested states in one file, without pickle."""

import functools
import json
import os
import zipfile

import ml_dtypes  # noqa: F401 (gives NumPy the names of bfloat16 and others)
import numpy as np

from keras_bdl._saving._lazy_array import LazyArray
from keras_bdl._saving._lazy_array import damage_explained
from keras_bdl._saving._lazy_array import read_array
from keras_bdl._saving._storage_path import StoragePath

FORMAT = "keras_bdl.state"
VERSION = 1


def write_state(path: str | os.PathLike[str], state: dict) -> None:
    """Writes a nested state to one file, completely or not at all.

    Use this function for files that must survive a crash. The file is an
    uncompressed zip of `state.json` and one `.npy` per array. The new file
    replaces an older file once the new file is complete and on disk: a process
    killed at any moment leaves the old file or the new file. The process may
    also leave a temporary file. The first write to the same path after ten
    minutes (in a bucket, after an hour) removes this file. If several processes
    write at the same time, the last one wins.

    Args:
        path: The file, local or remote, see
            `keras_bdl.extend.StoragePath`. An existing file is replaced.
        state: Dictionaries with string keys, lists, `str`, `int`, `float`,
            `bool`, `None` and numeric arrays, also of bfloat16. NumPy scalars
            come back as arrays without axes.
    """
    arrays: list = []
    document = {
        "format": FORMAT,
        "version": VERSION,
        "state": _encode(state, "state", arrays),
    }
    with StoragePath(path).replaced() as file:
        _write_archive(file, document, arrays)


def read_state(path: str | os.PathLike[str], *, lazy: bool = False) -> dict:
    """Returns the state that `write_state` wrote.

    Args:
        path: The file.
        lazy: Whether each array stays on disk as a `LazyArray` until it is
            read. The file must then stay unchanged. Defaults to `False`.
    """
    place = StoragePath(path).absolute()
    with (
        damage_explained(place),
        place.open_to_read() as file,
        zipfile.ZipFile(file) as archive,
    ):
        document = json.loads(archive.read("state.json"))
        if document["format"] != FORMAT:
            raise ValueError("not a state")
        version = document["version"]
        if version == VERSION:
            leaf = functools.partial(_leaf, archive)
            if lazy:
                leaf = functools.partial(_lazy_leaf, archive, place)
            return _decode(document["state"], leaf)
    raise ValueError(
        f"`path` must be a state file of format version {VERSION}. "
        "Read the file with the release of `keras_bdl` that wrote it. "
        f"Received: path={str(place)!r}, which has version {version!r}"
    )


def _encode(node, key, arrays):
    """Returns the JSON of a node, with a tag on each dictionary and array.

    The tags allow any string as a key of a dictionary.

    Args:
        node: The node to encode.
        key: Position of the node, for messages.
        arrays: List to which the function appends the arrays.
    """
    if node is None or isinstance(node, (str, bool)):
        return node
    # `float(node)`: JSON would write the repr of a NumPy float64.
    if isinstance(node, int):
        return int(node)
    if isinstance(node, float):
        return float(node)
    if isinstance(node, dict):
        wrong = [k for k in node if not isinstance(k, str)]
        if wrong:
            raise TypeError(
                "Keys of a state must be strings. Convert them with `str()`. "
                f"Received: {wrong[0]!r} in {key}"
            )
        items = {
            k: _encode(v, f"{key}[{k!r}]", arrays) for k, v in node.items()
        }
        return {"dict": items}
    if isinstance(node, list):
        return [_encode(v, f"{key}[{i}]", arrays) for i, v in enumerate(node)]
    if isinstance(node, (np.ndarray, np.generic, LazyArray)):
        if _is_numeric(node.dtype):
            arrays.append(node)
            return {
                "array": _member(len(arrays) - 1),
                "shape": list(node.shape),
                "dtype": _dtype_name(node.dtype),
            }
        received = f"an array of dtype {node.dtype}"
    else:
        received = type(node).__name__
    raise TypeError(
        "A state must be made of dict, list, str, int, float, bool, None and "
        "numeric NumPy arrays. Convert other objects, or leave them out. "
        f"Received: {key} is {received}"
    )


def _decode(node, leaf):
    if isinstance(node, list):
        return [_decode(v, leaf) for v in node]
    if not isinstance(node, dict):
        return node
    if "dict" in node:
        return {k: _decode(v, leaf) for k, v in node["dict"].items()}
    return leaf(node["array"], node["shape"], node["dtype"])


def _leaf(archive, member, shape, dtype):
    with archive.open(member) as file:
        return read_array(file, tuple(shape), np.dtype(dtype))


def _lazy_leaf(archive, path, member, shape, dtype):
    info = archive.getinfo(member)
    return LazyArray(path, info, shape=shape, dtype=dtype)


def _member(index):
    return f"arrays/{index}.npy"


def _is_numeric(dtype):
    return dtype.kind in "biufc" or dtype.isbuiltin == 2


def _dtype_name(dtype):
    # `dtype.str` keeps the byte order, but has no name for bfloat16.
    return dtype.name if dtype.isbuiltin == 2 else dtype.str


def _write_archive(file, document, arrays):
    # The date of a `ZipInfo` is fixed: equal states make equal files.
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr(zipfile.ZipInfo("state.json"), json.dumps(document))
        for i, array in enumerate(arrays):
            info = zipfile.ZipInfo(_member(i))
            with archive.open(info, "w", force_zip64=True) as member:
                _write_array(member, np.asarray(array))


def _write_array(member, array):
    if array.dtype.isbuiltin == 2:
        # The .npy format has no bfloat16, so its bits are stored as integers.
        array = array.view(f"u{array.dtype.itemsize}")
    # `member` is not a file on disk, so NumPy writes in blocks.
    np.lib.format.write_array(member, array, allow_pickle=False)
