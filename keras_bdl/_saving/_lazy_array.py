"""An array that stays on disk until it is needed."""

import contextlib
import errno
import struct
import zipfile
from collections.abc import Sequence
from typing import Any

import numpy as np

from keras_bdl._saving._storage_path import StoragePath

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

    Attributes:
        shape: Shape of the array.
        dtype: Data type of the array.

    Args:
        path: The `StoragePath` of the file, absolute.
        info: The `zipfile.ZipInfo` of the array in the file.
        shape: Shape of the array.
        dtype: Data type of the array.
    """

    def __init__(
        self,
        path: StoragePath,
        info: zipfile.ZipInfo,
        *,
        shape: Sequence[int],
        dtype: Any,
    ):
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

    def __array__(self, dtype=None, copy=None):
        return np.asarray(self.read(), dtype=dtype)

    def __repr__(self):
        return f"LazyArray(shape={self.shape}, dtype={self.dtype.name})"

    def _open(self):
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

    def _seek(self, file):
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


def read_array(member, shape: tuple, dtype):
    """Returns the array in a member of a state file.

    Args:
        member: The member, opened.
        shape: Shape of the array in the state.
        dtype: Data type of the array in the state.
    """
    array = np.lib.format.read_array(member, allow_pickle=False)
    # Reading up to the end compares the checksum.
    if member.read(1):
        raise EOFError("bytes follow the array")
    if dtype.isbuiltin == 2:  # bfloat16 and others, stored as integers
        array = array.view(dtype)
    if array.shape != shape or array.dtype != dtype:
        raise TypeError("shape or dtype differ from the state")
    return array


@contextlib.contextmanager
def damage_explained(path):
    """Returns a context that raises a `ValueError` for a damaged file.

    Args:
        path: The file that the block reads.
    """
    try:
        yield
    except (
        ConnectionError,
        FileNotFoundError,
        IsADirectoryError,
        PermissionError,
    ):
        raise
    # Errors of `zipfile`, `json` and `numpy.lib.format` for damaged bytes.
    except (
        zipfile.BadZipFile,
        EOFError,
        LookupError,
        OSError,
        OverflowError,
        RuntimeError,
        TypeError,
        ValueError,
    ) as error:
        if getattr(error, "errno", None) in (errno.EMFILE, errno.ENFILE):
            raise  # too many open files: the file is not damaged
        raise ValueError(
            "`path` must be a complete file of `keras_bdl`. This file is "
            "truncated, damaged or of another kind. Write it again. "
            f"Received: path={str(path)!r}"
        ) from error
