"""The files of samples in a directory, which one of several workers writes."""

import contextlib
import fnmatch
import os
import warnings

from keras_bdl.distribute.workers import is_chief
from keras_bdl.distribute.workers import wait_for_all
from keras_bdl.saving.state_file import write_state


def sample_path(directory: str, number: int) -> str:
    """Returns the file of a sample.

    Args:
        directory: That of the run.
        number: How many samples were taken before.
    """
    return os.path.join(directory, f"sample_{number:06d}.bdl")


def write_sample(path: str, weights: list, strategy):
    """Writes a sample, which is there for all workers afterwards.

    Args:
        path: What `sample_path` returned.
        weights: Arrays.
        strategy: That of the model.
    """
    if is_chief(strategy):
        write_state(path, {"weights": weights})
    wait_for_all(strategy)


def remove_sample(path: str, strategy):
    """Removes a sample.

    Args:
        path: Its file, which a killed run may have removed already.
        strategy: That of the model.
    """
    if is_chief(strategy):
        with contextlib.suppress(FileNotFoundError):
            os.remove(path)


def put_old_samples_aside(directory: str, strategy):
    """Moves the samples of an earlier run into a folder, with a warning.

    Left there, they would be mixed up with those of the new run. Deleting them
    could lose the work of days.

    Args:
        directory: That of a new run.
        strategy: That of the model.
    """
    if is_chief(strategy):
        _put_aside(directory)
    wait_for_all(strategy)


def _put_aside(directory):
    old = sorted(fnmatch.filter(os.listdir(directory), "sample_[0-9]*.bdl"))
    if not old:
        return
    number = 1
    while os.path.exists(os.path.join(directory, f"old_{number}")):
        number += 1
    folder = os.path.join(directory, f"old_{number}")
    os.mkdir(folder)
    for name in old:
        os.rename(os.path.join(directory, name), os.path.join(folder, name))
    warnings.warn(
        "`SampleCollector` has found samples of an earlier run and has moved "
        "them, so that they are not mixed with those of this run. Give each "
        "run a directory of its own. "
        f"Received: directory={directory!r}, {len(old)} files, now in "
        f"{folder!r}",
        stacklevel=4,
    )
