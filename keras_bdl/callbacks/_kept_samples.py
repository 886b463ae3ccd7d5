"""The samples of a `SampleCollector`, in memory or in files."""

from collections.abc import Iterator
from typing import Any

import keras
import numpy as np

from keras_bdl._saving._state_file import read_state
from keras_bdl.callbacks._sample_files import remove_sample
from keras_bdl.callbacks._sample_files import sample_path
from keras_bdl.callbacks._sample_files import write_sample
from keras_bdl.distribute._workers import weights_of_first_replica
from keras_bdl.posteriors._covered_weights import unfrozen_weights


class KeptSamples:
    """Keeps the latest samples of a model's weights.

    A killed run continues from the latest checkpoint. So the file of a dropped
    sample stays until a later checkpoint is written.
    """

    def __init__(self):
        self._samples: list = []  # the weights, or the path of their file
        # Arrays that stay in their file until they are read. Reading raises an
        # error if another file has replaced this file.
        self._on_disk: dict = {}
        # Files of dropped samples that the latest checkpoint may list, and
        # files that only an earlier one may list.
        self._listed: list[str] = []
        self._unlisted: list[str] = []
        self._is_checkpointed = False
        self._num_taken = 0

    def __len__(self) -> int:
        return len(self._samples)

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
    ) -> bool:
        """Adds the weights of a model, and drops the oldest samples.

        Frozen weights are equal in all samples, and are left out.

        Args:
            model: A built Keras model.
            directory: Directory for the file of the sample. `None` keeps the
                sample in memory.
            max_samples: Largest number of samples to keep, or `None`.

        Returns:
            Whether a sample was dropped.
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
            sample = sample_path(directory, self._num_taken)
            write_sample(sample, weights, model.distribute_strategy)
            self._read(sample)
        self._samples.append(sample)
        self._num_taken += 1
        dropped = False
        while max_samples and len(self._samples) > max_samples:
            dropped = True
            self._drop(self._samples.pop(0), model)
        return dropped

    def delete_unlisted(self, model: keras.Model) -> None:
        """Deletes the files of dropped samples that no checkpoint needs.

        Args:
            model: The model of the samples.
        """
        for path in self._unlisted:
            remove_sample(path, model.distribute_strategy)
        self._unlisted = []

    def get_state(self, model: keras.Model) -> dict[str, Any]:
        """Returns all samples, or the paths of their files, for a checkpoint.

        Args:
            model: The model of the samples.
        """
        self.delete_unlisted(model)
        self._unlisted, self._listed = self._listed, []
        self._is_checkpointed = True
        return {"samples": list(self._samples), "num_taken": self._num_taken}

    def set_state(self, state: dict[str, Any]) -> None:
        """Continues from a state that `get_state` returned.

        Args:
            state: Result of `get_state`, possibly from another process.
        """
        self._is_checkpointed = True
        self._on_disk = {}
        self._samples = list(state["samples"])
        self._num_taken = state["num_taken"]

    def _drop(self, sample, model):
        if not isinstance(sample, str):
            return
        self._on_disk.pop(sample, None)
        if self._is_checkpointed:
            self._listed.append(sample)
        else:
            remove_sample(sample, model.distribute_strategy)

    def _read(self, sample):
        if not isinstance(sample, str):
            return sample
        if sample not in self._on_disk:  # after a state was restored
            self._on_disk[sample] = read_state(sample, lazy=True)["weights"]
        return self._on_disk[sample]
