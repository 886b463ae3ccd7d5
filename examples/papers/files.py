"""Names of files, and files that are made once."""

import contextlib
import hashlib
import json
import re
import zipfile
import zlib

import numpy as np

from keras_bdl.extend import StoragePath

# Errors of `json`, `zipfile` and `numpy` on a damaged file.
DAMAGE = (
    EOFError,
    LookupError,
    OSError,
    RuntimeError,
    TypeError,
    ValueError,
    zipfile.BadZipFile,
    zlib.error,
)


def digested(*words):
    """Returns a name for a file or folder that ends in a hash.

    Args:
        *words: Strings for the start of the name. The last argument, any
            value that JSON can hold, gives the hash.
    """
    text = json.dumps(words[-1], sort_keys=True)
    digest = hashlib.sha256(text.encode()).hexdigest()[:8]
    return re.sub(r"[^\w.+*-]+", "-", "_".join((*words[:-1], digest)))


def write(path, text):
    """Writes a file, which is never left half written.

    Args:
        path: Path of the file, local or in a bucket.
        text: Content of the file.
    """
    StoragePath(path).write_text(text)


def read(path, again=None):
    """Returns the content of a JSON file.

    Args:
        path: Path of the file.
        again: See `damage_is_said`.
    """
    with damage_is_said(path, again):
        return json.loads(StoragePath(path).read_text())


def kept(path, make, again=None):
    """Returns the content of a JSON file; makes the file if it is missing.

    Args:
        path: Path of the file.
        make: Returns the content of a new file.
        again: See `damage_is_said`.
    """
    path = StoragePath(path)
    if not path.exists():
        found = make()
        path.parent.mkdir(parents=True, exist_ok=True)
        write(path, json.dumps(found))
    return read(path, again)


@contextlib.contextmanager
def damage_is_said(path, again=None):
    """Ends the program with an error message if a file cannot be read.

    Args:
        path: Path of the file that the block reads.
        again: Path that the error message tells the user to delete. The same
            command then makes the file again. Defaults to `None`, the file
            itself.
    """
    try:
        yield
    except (ConnectionError, PermissionError):
        raise
    except DAMAGE as error:
        raise SystemExit(
            f"{path} is missing, damaged or of another version: delete "
            f"{again or path}, and the same command makes it again. "
            f"Received: {type(error).__name__}: {error}"
        ) from error


@contextlib.contextmanager
def arrays_in(path):
    """Returns a context that yields the arrays of an `.npz` file.

    Args:
        path: Path of the file.
    """
    with StoragePath(path).open_to_read() as file, np.load(file) as arrays:
        yield arrays
