"""Nested states in one file, without pickle."""

import contextlib
import errno
import functools
import json
import os
import struct
import zipfile
from collections.abc import Iterator
from collections.abc import Sequence
from typing import Any

import ml_dtypes  # noqa: F401 (gives NumPy the names of bfloat16 and others)
import numpy as np

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
    """Returns the state that `write_state` wrote."""
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


def _encode(node: Any, key: Any, arrays: Any) -> Any:
    """Returns the JSON of a node, with a tag on each dictionary and array.

    The tags allow any string as a key of a dictionary.
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


def _decode(node: Any, leaf: Any) -> Any:
    if isinstance(node, list):
        return [_decode(v, leaf) for v in node]
    if not isinstance(node, dict):
        return node
    if "dict" in node:
        return {k: _decode(v, leaf) for k, v in node["dict"].items()}
    return leaf(node["array"], node["shape"], node["dtype"])


def _leaf(archive: Any, member: Any, shape: Any, dtype: Any) -> Any:
    with archive.open(member) as file:
        return read_array(file, tuple(shape), np.dtype(dtype))


def _lazy_leaf(
    archive: Any, path: StoragePath, member: Any, shape: Any, dtype: Any
) -> Any:
    info = archive.getinfo(member)
    return LazyArray(path, info, shape=shape, dtype=dtype)


def _member(index: int) -> str:
    return f"arrays/{index}.npy"


def _is_numeric(dtype: np.dtype) -> bool:
    return dtype.kind in "biufc" or dtype.isbuiltin == 2


def _dtype_name(dtype: np.dtype) -> str:
    # `dtype.str` keeps the byte order, but has no name for bfloat16.
    return dtype.name if dtype.isbuiltin == 2 else dtype.str


def _write_archive(file: Any, document: Any, arrays: Any) -> None:
    # The date of a `ZipInfo` is fixed: equal states make equal files.
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr(zipfile.ZipInfo("state.json"), json.dumps(document))
        for i, array in enumerate(arrays):
            info = zipfile.ZipInfo(_member(i))
            with archive.open(info, "w", force_zip64=True) as member:
                _write_array(member, np.asarray(array))


def _write_array(member: Any, array: np.ndarray) -> None:
    if array.dtype.isbuiltin == 2:
        # The .npy format has no bfloat16, so its bits are stored as integers.
        array = array.view(f"u{array.dtype.itemsize}")
    # `member` is not a file on disk, so NumPy writes in blocks.
    np.lib.format.write_array(member, array, allow_pickle=False)


# The header of a member of a zip file. We read the signature, the CRC-32, and
# the lengths of the name and of the extra field that follow.
_HEADER = struct.Struct("<4s10xI8xHH")
_SIGNATURE = b"PK\x03\x04"


class LazyArray:
    """One array of a state file that each access reads from disk.

    Use this class for arrays that do not fit into memory together. `read` and
    `numpy.asarray` return the array. The file is closed between two reads, so
    the limit of open files does not limit the number of arrays. The file must
    stay in place. Reading raises an error if the file was deleted, or replaced
    by a file in which this array differs. The check compares the checksum of
    the array, because files with the same content may have other dates.
    """

    def __init__(
        self,
        path: StoragePath,
        info: zipfile.ZipInfo,
        *,
        shape: Sequence[int],
        dtype: Any,
    ) -> None:
        self.shape = tuple(shape)
        self.dtype = np.dtype(dtype)
        self._path = path
        self._info = info

    def read(self) -> np.ndarray:
        """Returns the array."""
        with self._open() as file:
            self._seek(file)
            with (
                damage_explained(self._path),
                # `zipfile.ZipFile` would read the list of all members each
                # time.
                zipfile.ZipExtFile(file, "r", self._info) as member,
            ):
                return read_array(member, self.shape, self.dtype)

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        return np.asarray(self.read(), dtype=dtype)

    def __repr__(self) -> str:
        return f"LazyArray(shape={self.shape}, dtype={self.dtype.name})"

    def _open(self) -> Any:
        try:
            return self._path.open_to_read()
        except FileNotFoundError:
            raise FileNotFoundError(
                "The file of a lazily read state must stay in place as long "
                "as its arrays are in use. It was deleted or moved. Keep the "
                "file. If a collector dropped this sample, use its new "
                "`posterior`. "
                f"Received: path={str(self._path)!r}"
            ) from None

    def _seek(self, file: Any) -> None:
        """Checks the header, and moves `file` to the start of the array."""
        file.seek(self._info.header_offset)
        header = file.read(_HEADER.size).ljust(_HEADER.size)
        signature, checksum, *lengths = _HEADER.unpack(header)
        if (signature, checksum) != (_SIGNATURE, self._info.CRC):
            raise ValueError(
                "The file of a lazily read state must not change as long as "
                "its arrays are in use. Another file has replaced it. Load the "
                f"new file. Received: path={str(self._path)!r}"
            )
        file.seek(sum(lengths), 1)


def read_array(member: Any, shape: tuple, dtype: Any) -> Any:
    """Returns the array in a member of a state file."""
    array = np.lib.format.read_array(member, allow_pickle=False)
    # Reading up to the end compares the checksum.
    if member.read(1):
        raise EOFError("bytes follow the array")
    if dtype.isbuiltin == 2:  # bfloat16 and others, stored as integers
        array = array.view(dtype)
    if array.shape != shape or array.dtype != dtype:
        raise TypeError("shape or dtype differ from the state")
    return array


_NOT_DAMAGE = (
    ConnectionError,
    FileNotFoundError,
    IsADirectoryError,
    PermissionError,
)
# Errors of `zipfile`, `json` and `numpy.lib.format` for damaged bytes.
_DAMAGE = (
    zipfile.BadZipFile,
    EOFError,
    LookupError,
    OSError,
    OverflowError,
    RuntimeError,
    TypeError,
    ValueError,
)


@contextlib.contextmanager
def damage_explained(path: StoragePath) -> Iterator[None]:
    """Returns a context that raises a `ValueError` for a damaged file."""
    try:
        yield
    except _NOT_DAMAGE:
        raise
    except _DAMAGE as error:
        if getattr(error, "errno", None) in (errno.EMFILE, errno.ENFILE):
            raise  # too many open files: the file is not damaged
        raise ValueError(
            "`path` must be a complete file of `keras_bdl`. This file is "
            "truncated, damaged or of another kind. Write it again. "
            f"Received: path={str(path)!r}"
        ) from error
