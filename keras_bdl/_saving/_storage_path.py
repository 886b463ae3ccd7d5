"""Paths on the local disk and on the file systems of TensorFlow."""

import contextlib
import errno
import glob
import io
import os
import posixpath
import re
import shutil
import tempfile
import time
import uuid
from collections.abc import Iterator
from typing import Any
from typing import BinaryIO

import tensorflow as tf

# A letter alone is a drive of Windows and no scheme.
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+)://")
# Remote schemes that TensorFlow may lack here. A local folder "gs:" is always
# a mistake, such as that of `pathlib`, which turns "gs://" into "gs:/".
_REMOTE = ("az", "ftp", "gs", "hdfs", "http", "https", "s3", "viewfs")

# Seconds after which a file that no other file names counts as abandoned. The
# local limit counts from the last change, the remote one from the creation.
_ABANDONED = 600
_ABANDONED_REMOTELY = 3600

_POINTER = b"keras_bdl pointer 1\n"
_MOST_OF_POINTER = 4096
_BLOCK = 1 << 22


class StoragePath(os.PathLike):
    """A file or folder on the local disk or in a bucket.

    Use this class for files that must survive a crash and may lie on Google
    Cloud Storage: `StoragePath("gs://bucket/run")`. Every function and callback
    of `keras_bdl` that takes a path passes the path to this class. Methods with
    a name of `pathlib.Path` act as there.

    A path without a scheme, or with `file://`, is local. Any other scheme is
    remote and must be one of `tf.io.gfile.get_registered_schemes()`.

    `replaced` writes a file completely or not at all. On the local disk, the
    new file is renamed to the path. Remote file systems have no atomic rename:
    there the content goes to a new file, `data-<numbers>.<name>`, and a small
    file at the path, the pointer, then names the new file. The content is as in
    a local file. `open_to_read` follows a pointer, also in a folder that was
    copied to the local disk. Copy the folder, or both files.

    Args:
        path: A string, or an object with `__fspath__`. `pathlib.Path` works
            for local paths only.

    Example:

    ```python
    folder = keras_bdl.extend.StoragePath("gs://bucket/run")
    folder = keras_bdl.extend.StoragePath("run")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "notes.txt").write_text("a cold posterior")
    ```
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = _checked(os.fspath(path))

    def __fspath__(self) -> str:
        return self._path

    def __str__(self) -> str:
        return self._path

    def __repr__(self) -> str:
        return f"StoragePath({self._path!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, StoragePath) and other._path == self._path

    def __hash__(self) -> int:
        return hash(self._path)

    def __truediv__(self, name: str) -> "StoragePath":
        return StoragePath(_join(self._path, name))

    @property
    def is_remote(self) -> bool:
        """Whether TensorFlow serves the path."""
        return _is_remote(self._path)

    @property
    def name(self) -> str:
        """Last part of the path."""
        return _split(self._path)[1]

    @property
    def parent(self) -> "StoragePath":
        """The folder that holds the file or folder."""
        return StoragePath(_split(self._path)[0] or os.curdir)

    def absolute(self) -> "StoragePath":
        """Returns the path, independent of the working directory."""
        if self.is_remote:
            return self
        return StoragePath(os.path.abspath(self._path))

    def exists(self) -> bool:
        """Returns whether the file or folder exists."""
        return _exists(_present(self._path))

    def mkdir(self, *, parents: bool = False, exist_ok: bool = False) -> None:
        """Makes the folder.

        Args:
            parents: Whether to make missing parents. Remote parents are always
                made. Defaults to `False`.
            exist_ok: Whether the folder may exist. Defaults to `False`.
        """
        if not self.is_remote:
            if parents:
                os.makedirs(self._path, exist_ok=exist_ok)
            elif not (exist_ok and os.path.isdir(self._path)):
                os.mkdir(self._path)
            return
        if not exist_ok and self.exists():
            raise FileExistsError(
                errno.EEXIST, os.strerror(errno.EEXIST), self._path
            )
        with _as_os_error(self._path):
            tf.io.gfile.makedirs(self._path)

    def names(self) -> list[str]:
        """Returns the sorted names in the folder."""
        return sorted(_names(self._path))

    def open_to_read(self) -> BinaryIO:
        """Returns the file, opened to read bytes. Close the file afterwards."""
        target = _target(self._path)
        while True:
            try:
                return _open(target)
            except FileNotFoundError as error:
                # Another worker may have replaced the file in between.
                former, target = target, _target(self._path)
                if target != former:
                    continue
                if target == self._path:
                    raise
                raise FileNotFoundError(
                    errno.ENOENT,
                    f"The content is in the file {_split(target)[1]!r}, which "
                    "must lie beside this file and is missing. Copy both",
                    self._path,
                ) from error

    def read_text(self) -> str:
        """Returns the content of a text file."""
        with self.open_to_read() as file:
            return file.read().decode()

    @contextlib.contextmanager
    def replaced(self) -> Iterator[Any]:
        """Yields a new binary file. Replaces the file when the block ends.

        A process killed at any moment leaves the old content or the new
        content. If several processes write at the same time, the last one
        wins. Local folders must exist, remote folders need not.
        """
        path = self.absolute()._path
        if not self.is_remote and not os.path.isdir(os.path.dirname(path)):
            raise FileNotFoundError(
                "The directory of `path` must exist. Create it with "
                f"`os.makedirs`. Received: path={self._path!r}"
            )
        replace = _replaced_remotely if self.is_remote else _replaced_locally
        with _file_named(path), replace(path) as file:
            yield file

    def write_text(self, text: str) -> None:
        """Writes a text file. A remote text is one write, without pointer."""
        if self.is_remote:
            _write(self._path, text.encode())
            return
        with self.replaced() as file:
            file.write(text.encode())

    def unlink(self, *, missing_ok: bool = False) -> None:
        """Removes the file.

        Args:
            missing_ok: Whether the file may be missing. Defaults to `False`.
        """
        try:
            target = _target(self._path)
        except FileNotFoundError:
            if not missing_ok:
                raise
            return
        if self.is_remote:
            for part, _, _ in _files_of(self._path, "part"):
                _remove(part, missing_ok=True)
        for path in (self._path, target):
            _remove(path, missing_ok=True)

    def remove_folder(self) -> None:
        """Removes the folder and all that is in it."""
        if not self.is_remote:
            shutil.rmtree(self._path)
            return
        with _as_os_error(self._path):
            tf.io.gfile.rmtree(self._path)

    def move_into(self, folder: "StoragePath") -> None:
        """Moves the file into another folder of the same file system.

        Args:
            folder: The folder, which must exist.
        """
        target, present = _target(self._path), _present(self._path)
        # The pointer last: its file must be there when the pointer is.
        moved = {
            target: (folder / _split(target)[1])._path,
            present: (folder / self.name)._path,
        }
        if not self.is_remote:
            for path, new in moved.items():
                os.rename(path, new)
            return
        with _as_os_error(self._path):
            for path, new in moved.items():
                tf.io.gfile.copy(path, new)
        self.unlink()


def _checked(path: str) -> str:
    """Returns a local path or a remote address that TensorFlow serves."""
    found = _SCHEME.match(path)
    scheme = found and found[1]
    if scheme == "file":
        path = path[len("file://") :]
        if not path.startswith("/"):
            raise ValueError(
                "A path with the scheme `file` must be absolute and begin with "
                f'"file:///". Received: path={"file://" + path!r}'
            )
        return path
    registered = set(tf.io.gfile.get_registered_schemes())
    if scheme is not None:
        if scheme not in registered:
            raise ValueError(
                f'`path` has the scheme "{scheme}://", for which TensorFlow '
                "has no file system here: use another place, or import a "
                "package that registers the scheme, such as `tensorflow_io` "
                f"for s3 and hdfs. Received: path={path!r}, registered: "
                f"{sorted(registered - {''})}"
            )
        return path
    shortened = {f"{name}:" for name in registered | {*_REMOTE} if name}
    wrong = shortened & {*re.split(r"[/\\]", path)}
    if wrong:
        raise ValueError(
            "`path` must be a string of the form "
            f'"{min(wrong)}//...": `pathlib` and `os.path.abspath` remove a '
            f"slash of remote paths. Received: path={path!r}"
        )
    return path


def _is_remote(path: str) -> bool:
    return _SCHEME.match(path) is not None


def _split(path: str) -> tuple[str, str]:
    """Returns the folder and the name."""
    if not _is_remote(path):
        return os.path.split(path)
    folder, _, name = path.rpartition("/")
    return folder + "/" * folder.endswith(":/"), name


def _join(folder: str, name: str) -> str:
    return (posixpath if _is_remote(folder) else os.path).join(folder, name)


@contextlib.contextmanager
def _as_os_error(path: str) -> Iterator[Any]:
    """Returns a context that turns errors of TensorFlow into `OSError`."""
    try:
        yield
    except tf.errors.NotFoundError as error:
        raise FileNotFoundError(
            errno.ENOENT, os.strerror(errno.ENOENT), path
        ) from error
    except (
        tf.errors.PermissionDeniedError,
        tf.errors.UnauthenticatedError,
    ) as error:
        raise PermissionError(errno.EACCES, error.message, path) from error
    except tf.errors.OpError as error:
        # No `OSError`: the file may be intact where the network is not.
        raise ConnectionError(
            errno.EIO, f"TensorFlow could not reach it: {error.message}", path
        ) from error


def _exists(path: str) -> bool:
    if not _is_remote(path):
        return os.path.exists(path)
    with _as_os_error(path):
        return tf.io.gfile.exists(path)


def _names(path: str) -> list[str]:
    if not _is_remote(path):
        return os.listdir(path)
    with _as_os_error(path):
        # Object stores end the names of folders with a slash.
        return [name.rstrip("/") for name in tf.io.gfile.listdir(path)]


def _length(path: str) -> int:
    if not _is_remote(path):
        return os.path.getsize(path)
    with _as_os_error(path):
        return tf.io.gfile.stat(path).length


def _remove(path: str, missing_ok: bool = False) -> None:
    missing = (FileNotFoundError,) if missing_ok else ()
    with contextlib.suppress(*missing), _as_os_error(path):
        (tf.io.gfile.remove if _is_remote(path) else os.remove)(path)


def _open(path: str) -> Any:
    if not _is_remote(path):
        return open(path, "rb")
    # The length raises an error if the file is missing.
    return io.BufferedReader(_RemoteFile(path, _length(path)), 1 << 20)


def _write(path: str, content: bytes) -> None:
    """Replaces a small remote file."""
    part = _new_name(path, len(content), "part")
    with _as_os_error(path):
        with tf.io.gfile.GFile(part, "wb") as file:
            file.write(content)
        # Some file systems would append to an existing file. Most have no
        # moment without the file; the others are why `_present` exists.
        tf.io.gfile.rename(part, path, overwrite=True)


class _RemoteFile(io.RawIOBase):
    """A remote file that reads as a file of Python does."""

    def __init__(self, path: str, length: int) -> None:
        self._name = path
        self._length = length
        self._position = 0
        self._file = tf.io.gfile.GFile(path, "rb")

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> Any:
        start = (0, self._position, self._length)[whence]
        if start + offset < 0:
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL), self._name)
        self._position = start + offset
        return self._position

    def readinto(self, buffer: Any) -> Any:
        if self._position >= self._length:
            return 0  # TensorFlow refuses to seek past the end
        with _as_os_error(self._name):
            if self._file.tell() != self._position:
                self._file.seek(self._position)
            read = self._file.read(len(buffer))
        buffer[: len(read)] = read
        self._position += len(read)
        return len(read)

    def close(self) -> None:
        if not self.closed:
            self._file.close()
        super().close()


def _present(path: str) -> str:
    """Returns the path of an existing file, or of its written successor.

    Without an atomic rename, a killed writer may have deleted the file and not
    yet renamed the new one.
    """
    if not _is_remote(path) or _exists(path):
        return path
    return max(_whole_files(path, "part"), default=path)


def _target(path: str) -> str:
    """Returns the path of the file that holds the content of `path`."""
    present = _present(path)
    with _open(present) as file:
        head = file.read(_MOST_OF_POINTER)
    if not head.startswith(_POINTER):
        return present
    name, end, rest = head[len(_POINTER) :].decode().partition("\n")
    if not end or rest or _split(name)[0]:
        raise ValueError(
            "`path` is a damaged pointer. Write the file again. "
            f"Received: path={path!r}"
        )
    return _join(_split(path)[0], name)


def _new_name(path: str, length: int, kind: str) -> str:
    # The times have equally many digits, so names sort by time. `ram://` takes
    # a file for a folder if its path begins the path of another file.
    moment = f"{kind}-{time.time_ns():020d}-{length}-{uuid.uuid4().hex[:8]}"
    folder, name = _split(path)
    return _join(folder, f"{moment}.{name}")


def _files_of(path: str, kind: str) -> Iterator[Any]:
    """Yields path, time and length in the name of the files of `_new_name`."""
    folder, name = _split(path)
    form = re.compile(rf"{kind}-(\d{{20}})-(\d+)-\w{{8}}\." + re.escape(name))
    try:
        names = _names(folder)
    except FileNotFoundError:
        return  # a folder in a bucket exists once a file does
    for found in filter(None, map(form.fullmatch, names)):
        yield _join(folder, found[0]), int(found[1]), int(found[2])


def _whole_files(path: str, kind: str) -> Iterator[Any]:
    """Yields the files that have the length in their name."""
    for other, _, length in _files_of(path, kind):
        with contextlib.suppress(FileNotFoundError):  # removed in between
            if _length(other) == length:
                yield other


@contextlib.contextmanager
def _replaced_remotely(path: str) -> Iterator[Any]:
    """Yields a local file, which is then copied, and named by a pointer."""
    former = _target(path) if _exists(_present(path)) else None
    # The kernel removes the file even if the process is killed.
    with _disk_named(), tempfile.TemporaryFile() as copy:
        yield copy
        length = copy.seek(0, os.SEEK_END)
        data = _new_name(path, length, "data")
        copy.seek(0)
        with _as_os_error(data), tf.io.gfile.GFile(data, "wb") as file:
            shutil.copyfileobj(copy, file, _BLOCK)
    _write(path, _POINTER + f"{_split(data)[1]}\n".encode())
    _remove_superseded(path, former)


def _remove_superseded(path: str, former: str | None) -> None:
    """Removes the former file and those that killed writers have left."""
    oldest = time.time_ns() - _ABANDONED_REMOTELY * 10**9
    others = [*_files_of(path, "data"), *_files_of(path, "part")]
    named = _target(path)  # by now perhaps the file of another writer
    for other, moment, _ in others:
        if other != named and (other == former or moment < oldest):
            _remove(other, missing_ok=True)


@contextlib.contextmanager
def _disk_named() -> Iterator[Any]:
    """Returns a context in which a full local disk names its folder."""
    try:
        yield
    except OSError as error:
        if error.errno != errno.ENOSPC or error.filename is not None:
            raise
        raise OSError(
            error.errno,
            f"{error.strerror} in the local folder {tempfile.gettempdir()!r}, "
            "through which a remote file is written",
        ) from error


@contextlib.contextmanager
def _replaced_locally(path: str) -> Iterator[Any]:
    """Yields a file beside `path`, which is then renamed to `path`."""
    folder, name = os.path.split(path)
    stem = os.path.join(folder, f".{name}.")
    for leftover in glob.glob(f"{glob.escape(stem)}*.tmp"):
        # Another worker may still write this file, or remove it.
        with contextlib.suppress(FileNotFoundError):
            if time.time() - os.path.getmtime(leftover) > _ABANDONED:
                os.remove(leftover)
    temporary = f"{stem}{uuid.uuid4().hex}.tmp"
    try:
        with open(temporary, "xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.remove(temporary)
        raise
    _sync_folder(folder)


@contextlib.contextmanager
def _file_named(path: str) -> Iterator[Any]:
    """Returns a context in which errors of the disk name the file."""
    try:
        yield
    except OSError as error:
        raise OSError(
            error.errno,
            f"{error.strerror or error}. The file was not written, and an "
            "older file is intact. Make room, or write to another place",
            path,
        ) from error


def _sync_folder(folder: str) -> None:
    if os.name != "posix":
        return  # other systems cannot open a folder, and need not sync it
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
