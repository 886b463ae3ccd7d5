"""Where and how everything runs."""

import dataclasses
from pathlib import Path

import keras
import settings
import tensorflow as tf
from methods import METHODS
from predicted import Predicted
from trained import Trained

# From one member of an ensemble to the next.
SEED_OF_MEMBER = 1000


@dataclasses.dataclass(frozen=True)
class Session:
    """Where and how everything runs.

    Attributes:
        scale: The scale.
        folder: Where the runs are kept.
        strategy: A `tf.distribute.Strategy`.
        data_dir: Where TensorFlow Datasets keeps its files.
        steps_per_execution: As of `compile`.
    """

    scale: str
    folder: Path
    strategy: tf.distribute.Strategy
    data_dir: str | None = None
    steps_per_execution: int = 1

    @property
    def static_shapes(self):
        """Whether all batches must have one size."""
        return isinstance(self.strategy, tf.distribute.TPUStrategy)

    @property
    def precision(self):
        """What of it belongs to the name of a result: nothing of float32."""
        policy = keras.config.dtype_policy().name
        return () if policy == "float32" else (policy,)

    def trained(self, cell, training, seed, ood=()):
        """Returns a training of a cell, finished or not.

        Args:
            cell: The `Cell`.
            training: Name of the training.
            seed: The seed.
            ood: Names of the sets that are out of distribution.
        """
        known = settings.of(cell, training, self.scale)
        return Trained(self, cell, training, seed, _as_pairs(known), ood)

    def predicted(self, cell, seed, ood=()):
        """Returns what a cell predicts, for each set, and the trainings.

        Args:
            cell: The `Cell`.
            seed: The seed.
            ood: Names of the sets that are out of distribution.
        """
        method = method_of(cell)
        trained = [
            self.trained(
                cell, method.training, seed + SEED_OF_MEMBER * member, ood
            )
            for member in range(method.members)
        ]
        for one in trained:
            one.finish()
        predictions = Predicted(cell, method, trained).load()
        # Without the models, which a long recipe would pile up.
        return predictions, [dataclasses.replace(one) for one in trained]


def method_of(cell):
    """Returns the `Method` of a cell."""
    if cell.method not in METHODS:
        raise SystemExit(
            f"There is no method {cell.method!r}, only {', '.join(METHODS)}."
        )
    return METHODS[cell.method]


def _as_pairs(settings):
    def frozen(value):
        return tuple(map(frozen, value)) if isinstance(value, list) else value

    return tuple(sorted((k, frozen(v)) for k, v in settings.items()))
