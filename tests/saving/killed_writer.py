"""Writers of remote files that are killed."""

import contextlib
from unittest import mock

import tensorflow as tf

gfile = tf.io.gfile


class Killed(BaseException):
    pass


@contextlib.contextmanager
def killed_at_change(k):
    """Makes the k-th change of a remote file, and all later ones, fail.

    The memory of `ram://` ends with its process, so nothing is really killed.
    """
    count = 0

    def mortal(change):
        def call(*args, **kwargs):
            nonlocal count
            count += 1
            if count >= k:
                raise Killed(change.__name__)
            return change(*args, **kwargs)

        return call

    class File(gfile.GFile):
        write = mortal(gfile.GFile.write)

    with mock.patch.multiple(
        gfile,
        GFile=File,
        rename=mortal(gfile.rename),
        remove=mortal(gfile.remove),
    ):
        yield
