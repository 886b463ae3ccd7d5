"""Names and files of what is kept."""

import contextlib
import hashlib
import json
import os
import re
import zipfile
import zlib

# What `json`, `zipfile` and `numpy` raise on damage.
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
    """Returns a name for a file or folder, ending in a hash.

    Args:
        *words: Begin of the name; of the last one, anything that JSON has a
            word for, the hash.
    """
    text = json.dumps(words[-1], sort_keys=True)
    digest = hashlib.sha256(text.encode()).hexdigest()[:8]
    return re.sub(r"[^\w.+*-]+", "-", "_".join((*words[:-1], digest)))


def write(path, text):
    """Writes a file in one piece.

    Args:
        path: Its path.
        text: What is to be in it.
    """
    part = path.with_suffix(".part")
    part.write_text(text)
    os.replace(part, path)


def read(path, again=None):
    """Returns what a JSON file has.

    Args:
        path: Its path.
        again: As of `damage_is_said`.
    """
    with damage_is_said(path, again):
        return json.loads(path.read_text())


def kept(path, make, again=None):
    """Returns what a JSON file has, which is made if there is none.

    Args:
        path: Its path.
        make: Returns what is to be in it.
        again: As of `damage_is_said`.
    """
    if not path.exists():
        found = make()
        path.parent.mkdir(parents=True, exist_ok=True)
        write(path, json.dumps(found))
    return read(path, again)


@contextlib.contextmanager
def damage_is_said(path, again=None):
    """Ends the program with one sentence where a file cannot be read.

    Args:
        path: Path of the file that is read inside the block.
        again: What has to be deleted for the file to be made again. Defaults
            to `None`, the file.
    """
    try:
        yield
    except PermissionError:
        raise
    except DAMAGE as error:
        raise SystemExit(
            f"{path} is missing, damaged or of another version: delete "
            f"{again or path}, and the same command makes it again. "
            f"Received: {type(error).__name__}: {error}"
        ) from error
