"""An array that stays on disk until it is needed."""

import contextlib
import errno
import struct
import zipfile

import numpy as np

# What a zip puts before a member, of which these count: signature, CRC-32,
# lengths of the name and of the extra field that follow.
_HEADER = struct.Struct("<4s10xI8xHH")
_SIGNATURE = b"PK\x03\x04"


class LazyArray:
    """One array of a state file, read each time it is asked for.

    `numpy.asarray` reads it as well. Between two reads the file is closed,
    so there may be more of these than a process may open files. It must stay
    where it is: if it was deleted, or replaced by a file in which this array
    differs, reading is an error. The checksum of the array tells, and not the
    date or the number of the file, which equal contents need not share.

    Attributes:
        shape: Shape of the array.
        dtype: Data type of the array.

    Args:
        path: The file, an absolute path.
        info: The `zipfile.ZipInfo` of the array in the file.
        shape: Shape of the array.
        dtype: Data type of the array.
    """

    def __init__(self, path: str, info, shape: tuple, dtype):
        self.shape = tuple(shape)
        self.dtype = np.dtype(dtype)
        self._path = path
        self._info = info

    def read(self):
        """Returns the array."""
        with self._open() as file:
            self._seek(file)
            with (
                damage_explained(self._path),
                # Not through `zipfile.ZipFile`, which would read the list of
                # all members each time.
                zipfile.ZipExtFile(file, "r", self._info) as member,
            ):
                return read_array(member, self.shape, self.dtype)

    def __array__(self, dtype=None, copy=None):
        return np.asarray(self.read(), dtype=dtype)

    def __repr__(self):
        return f"LazyArray(shape={self.shape}, dtype={self.dtype.name})"

    def _open(self):
        try:
            return open(self._path, "rb")
        except FileNotFoundError:
            raise FileNotFoundError(
                "The file of a lazily read state must stay where it is as "
                "long as its arrays are in use; it was deleted or moved. Keep "
                "it, or load again what is left (a collector that drops old "
                "samples has a new `posterior` without them). "
                f"Received: path={self._path!r}"
            ) from None

    def _seek(self, file):
        """Goes to the begin of the array, if it is still the one described."""
        file.seek(self._info.header_offset)
        header = file.read(_HEADER.size).ljust(_HEADER.size)
        signature, checksum, *lengths = _HEADER.unpack(header)
        if (signature, checksum) != (_SIGNATURE, self._info.CRC):
            raise ValueError(
                "The file of a lazily read state must not change as long as "
                "its arrays are in use; another one has taken its place. Load "
                f"the new one. Received: path={self._path!r}"
            )
        file.seek(sum(lengths), 1)


def read_array(member, shape: tuple, dtype):
    """Returns the array in a member of a state file.

    Args:
        member: The member, opened.
        shape: Its shape, as the state describes it.
        dtype: Its data type, as the state describes it.
    """
    array = np.lib.format.read_array(member, allow_pickle=False)
    # Reading up to the end is what compares the checksum.
    if member.read(1):
        raise EOFError("there are bytes behind the array")
    if dtype.isbuiltin == 2:  # bfloat16 and the like, as integers
        array = array.view(dtype)
    if array.shape != shape or array.dtype != dtype:
        raise TypeError("the array is not the one described")
    return array


@contextlib.contextmanager
def damage_explained(path):
    """Turns what damaged bytes raise inside the block into one error."""
    try:
        yield
    except (FileNotFoundError, IsADirectoryError, PermissionError):
        raise
    # What `zipfile`, `json` and `numpy.lib.format` raise on damage.
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
            raise  # too many open files say nothing about this one
        raise ValueError(
            "`path` must be a whole file written by `keras_bdl`; this one is "
            "truncated, damaged or something else. Write it again. "
            f"Received: path={path!r}"
        ) from error
