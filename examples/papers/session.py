"""The folder and the options that all runs share."""

import dataclasses
from pathlib import Path

import keras
import tensorflow as tf
from lookup import settings_of
from methods import METHODS
from predicted import Predicted
from trained import Trained
from trainings import check

# Difference of the seeds of two members of an ensemble.
SEED_OF_MEMBER = 1000
# The most members of an ensemble at the scale `smoke`.
SMOKE_MEMBERS = 2


@dataclasses.dataclass(frozen=True)
class Session:
    """The folder and the options that all runs share.

    Attributes:
        scale: One of `scales.SCALES`.
        folder: Folder of the runs.
        strategy: A `tf.distribute.Strategy`.
        seeds: Number of seeds of each cell. Defaults to 1.
        data_dir: Folder of TensorFlow Datasets and of other files.
        steps_per_execution: Passed to `compile`.
    """

    scale: str
    folder: Path
    strategy: tf.distribute.Strategy
    seeds: int = 1
    data_dir: str | None = None
    steps_per_execution: int = 1

    @property
    def static_shapes(self):
        """Whether all batches must have the same size."""
        return isinstance(self.strategy, tf.distribute.TPUStrategy)

    @property
    def precision(self):
        """The words for the precision in a file name; none for float32."""
        policy = keras.config.dtype_policy().name
        return () if policy == "float32" else (policy,)

    def trained(self, cell, training, seed, ood=()):
        """Returns a training of a cell, finished or not.

        Args:
            cell: The `Cell`.
            training: Name of the training.
            seed: The seed.
            ood: Names of the out-of-distribution sets.
        """
        known = settings_of(cell, training, self.scale)
        check(training, known, f"{cell.paper}, {cell.where}, {cell.label}")
        return Trained(self, cell, training, seed, known, ood)

    def predicted(self, cell, seed, ood=()):
        """Returns the predictions of a cell by set, and its trainings.

        Args:
            cell: The `Cell`.
            seed: The seed.
            ood: Names of the out-of-distribution sets.
        """
        method, members = method_of(cell), method_of(cell).members
        if self.scale == "smoke":
            members = min(members, SMOKE_MEMBERS)
        trained = [
            self.trained(
                cell, method.training, seed + SEED_OF_MEMBER * member, ood
            )
            for member in range(members)
        ]
        for one in trained:
            one.finish()
        predictions = Predicted(cell, method, trained).load()
        # Copies have no models, which would fill the memory in a long recipe.
        return predictions, [dataclasses.replace(one) for one in trained]


def method_of(cell):
    """Returns the `Method` of a cell.

    Args:
        cell: The `Cell`.
    """
    if cell.method not in METHODS:
        raise SystemExit(
            f"There is no method {cell.method!r}, only {', '.join(METHODS)}."
        )
    return METHODS[cell.method]
