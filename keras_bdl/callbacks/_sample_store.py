"""The samples of a `SampleCollector`, in memory or in files."""

import fnmatch
import warnings
from collections.abc import Iterator
from typing import Any

import keras
import numpy as np

from keras_bdl._saving._state_file import read_state
from keras_bdl._saving._state_file import write_state
from keras_bdl._saving._storage_path import StoragePath
from keras_bdl.distribute._workers import is_chief
from keras_bdl.distribute._workers import wait_for_all
from keras_bdl.distribute._workers import weights_of_first_replica
from keras_bdl.posteriors._covered_weights import unfrozen_weights


class SampleStore:
    """Keeps the latest samples of a model's weights.

    A killed run continues from the latest checkpoint. So the file of a dropped
    sample stays until a later checkpoint is written.
    """

    def __init__(self) -> None:
        self._samples: list = []  # the weights, or the path of their file
        # Arrays that stay in their file until they are read. Reading raises an
        # error if another file has replaced this file.
        self._on_disk: dict = {}
        # Files of dropped samples: those that the latest checkpoint names, and
        # those that only an older one names.
        self._named_by_checkpoint: list[str] = []
        self._safe_to_delete: list[str] = []
        self._is_checkpointed = False
        self._num_taken = 0

    def __len__(self) -> int:
        return len(self._samples)

    @property
    def num_dropped(self) -> int:
        """Number of samples that are no longer here."""
        return self._num_taken - len(self._samples)

    def __getitem__(self, index: int) -> list:
        return self._read(self._samples[index])

    def __iter__(self) -> Iterator[list]:
        return map(self._read, self._samples)

    def take(
        self,
        model: keras.Model,
        *,
        directory: str | None,
        max_samples: int | None,
    ) -> None:
        """Adds the weights of a model, and drops the oldest samples.

        Frozen weights are equal in all samples, and are left out.
        """
        kept = {id(v) for v in unfrozen_weights(model)}
        weights = [
            w
            for w, v in zip(
                weights_of_first_replica(model), model.weights, strict=True
            )
            if id(v) in kept
        ]
        if directory is None:
            sample: Any = [np.array(w) for w in weights]
        else:
            name = f"sample_{self._num_taken:06d}.bdl"
            sample = str(StoragePath(directory) / name)
            strategy = model.distribute_strategy
            if is_chief(strategy):
                write_state(sample, {"weights": weights})
            wait_for_all(strategy)  # now every worker can read the file
            self._read(sample)
        self._samples.append(sample)
        self._num_taken += 1
        while max_samples and len(self._samples) > max_samples:
            self._drop(self._samples.pop(0), model)

    def delete_safe_files(self, model: keras.Model) -> None:
        """Deletes the files of dropped samples that no checkpoint needs."""
        for path in self._safe_to_delete:
            _remove(path, model)
        self._safe_to_delete = []

    def get_state(self, model: keras.Model) -> dict[str, Any]:
        """Returns all samples, or their paths, for a checkpoint."""
        self.delete_safe_files(model)
        # Once this state is written, no checkpoint names these files.
        self._safe_to_delete = self._named_by_checkpoint
        self._named_by_checkpoint = []
        self._is_checkpointed = True
        return {"samples": list(self._samples), "num_taken": self._num_taken}

    def set_state(self, state: dict[str, Any]) -> None:
        self._is_checkpointed = True
        self._on_disk = {}
        self._samples = list(state["samples"])
        self._num_taken = state["num_taken"]

    def _drop(self, sample: Any, model: keras.Model) -> None:
        if not isinstance(sample, str):
            return
        self._on_disk.pop(sample, None)
        if self._is_checkpointed:
            self._named_by_checkpoint.append(sample)
        else:
            _remove(sample, model)

    def _read(self, sample: Any) -> Any:
        if not isinstance(sample, str):
            return sample
        if sample not in self._on_disk:  # after a state was restored
            self._on_disk[sample] = read_state(sample, lazy=True)["weights"]
        return self._on_disk[sample]


def _remove(path: str, model: keras.Model) -> None:
    if is_chief(model.distribute_strategy):
        StoragePath(path).unlink(missing_ok=True)


def put_old_samples_aside(directory: str, strategy: Any) -> None:
    """Moves the samples of an earlier run into a subfolder, with a warning.

    If the old samples stayed, the new run would overwrite some and leave the
    others among its own. Deleting them could lose days of work.
    """
    if is_chief(strategy):
        _put_aside(directory)
    wait_for_all(strategy)


def _put_aside(directory: str) -> None:
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
