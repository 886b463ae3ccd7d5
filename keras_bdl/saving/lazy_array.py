"""An array that stays on disk until it is needed."""

import contextlib
import errno
import zipfile

import numpy as np


class LazyArray:
    """One array of a state file, read each time it is asked for.

    `numpy.asarray` reads it as well. The file stays open as long as one of
    its arrays is in use: where it is replaced meanwhile, the old one is read.

    Attributes:
        shape: Shape of the array.
        dtype: Data type of the array.

    Args:
        archive: The open `zipfile.ZipFile`, shared by all its arrays.
        member: Name of the array inside the file.
        shape: Shape of the array.
        dtype: Data type of the array.
    """

    def __init__(self, archive, member: str, shape: tuple, dtype):
        self.shape = tuple(shape)
        self.dtype = np.dtype(dtype)
        self._archive = archive
        self._member = member

    def read(self):
        """Returns the array."""
        with damage_explained(self._archive.filename):
            with self._archive.open(self._member) as file:
                array = np.lib.format.read_array(file, allow_pickle=False)
                # Reading up to the end is what compares the checksum.
                if file.read(1):
                    raise EOFError("there are bytes behind the array")
            if self.dtype.isbuiltin == 2:  # bfloat16 and the like, as integers
                array = array.view(self.dtype)
            if array.shape != self.shape or array.dtype != self.dtype:
                raise TypeError("the array is not the one described")
            return array

    def __array__(self, dtype=None, copy=None):
        return np.asarray(self.read(), dtype=dtype)

    def __repr__(self):
        return f"LazyArray(shape={self.shape}, dtype={self.dtype.name})"


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
