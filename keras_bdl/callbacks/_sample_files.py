"""Files of posterior samples in a directory that several workers share."""

import fnmatch
import warnings
from typing import Any

from keras_bdl._saving._state_file import write_state
from keras_bdl._saving._storage_path import StoragePath
from keras_bdl.distribute._workers import is_chief
from keras_bdl.distribute._workers import wait_for_all


def sample_path(directory: str, number: int) -> str:
    """Returns the path of the file for a sample.

    Args:
        directory: Directory of the run.
        number: Number of samples that the run took before this sample.
    """
    return str(StoragePath(directory) / f"sample_{number:06d}.bdl")


def write_sample(path: str, weights: list, strategy: Any) -> None:
    """Writes a sample. Afterwards all workers can read it.

    Args:
        path: Path from `sample_path`.
        weights: Arrays.
        strategy: Strategy of the model.
    """
    if is_chief(strategy):
        write_state(path, {"weights": weights})
    wait_for_all(strategy)


def remove_sample(path: str, strategy: Any) -> None:
    """Removes the file of a sample.

    Args:
        path: Path of the file. A killed run may already have removed it.
        strategy: Strategy of the model.
    """
    if is_chief(strategy):
        StoragePath(path).unlink(missing_ok=True)


def put_old_samples_aside(directory: str, strategy: Any) -> None:
    """Moves the samples of an earlier run into a subfolder, with a warning.

    If the old samples stayed, the new run would overwrite some and leave the
    others among its own. Deleting them could lose days of work.

    Args:
        directory: Directory of the new run.
        strategy: Strategy of the model.
    """
    if is_chief(strategy):
        _put_aside(directory)
    wait_for_all(strategy)


def _put_aside(directory):
    place = StoragePath(directory)
    old = fnmatch.filter(place.names(), "sample_[0-9]*.bdl")
    if not old:
        return
    number = 1
    while (place / f"old_{number}").exists():
        number += 1
    folder = place / f"old_{number}"
    folder.mkdir()
    for name in old:
        (place / name).move_into(folder)
    warnings.warn(
        "`SampleCollector` moved samples of an earlier run into a subfolder. "
        "Give each run its own directory. "
        f"Received: directory={directory!r}, {len(old)} files, now in "
        f"{str(folder)!r}",
        stacklevel=4,
    )
