"""The seed of training noise, given or drawn when its owner is made."""

import warnings
from collections.abc import Iterable
from typing import Any

import numpy as np
import tensorflow as tf

from keras_bdl import _keras
from keras_bdl._arguments import check_seed
from keras_bdl._backend import in_several_workers
from keras_bdl.distribute._workers import numbers_of_workers

# The key of a seed in the file of an optimizer or objective.
SAVED = "seed"


class NoiseSeed:
    """Gives a class the attribute `seed`, an integer.

    With `seed=None`, the object draws its seed once, when it is made. The draw
    depends on `keras.utils.set_random_seed`, like the initial weights of Keras.
    The config holds the drawn number, so a copy of the object has the same
    noise. A run that continues from a file takes the drawn seed of the file.
    """

    seed: int
    _seed_is_drawn = False
    _seed_is_traced = False

    def choose_seed(self, seed: int | None) -> None:
        """Sets the seed, or draws one for `None`."""
        self._seed_is_drawn = seed is None
        self.seed = _keras.drawn_seed() if seed is None else check_seed(seed)

    def noise_seed(self) -> int:
        """Returns the seed for an operation that draws noise."""
        if not tf.executing_eagerly():
            self._seed_is_traced = True
        return self.seed

    def agree_on_seed(self, strategy: tf.distribute.Strategy) -> None:
        """Gives all workers one seed; raises if they were given several.

        All workers must call this method together.

        Args:
            strategy: The strategy of the model.
        """
        if not in_several_workers(strategy):
            return
        with tf.init_scope():
            found = numbers_of_workers(
                strategy, [self.seed, int(self._seed_is_drawn)]
            )
        seeds = [seed for seed, _ in found]
        if all(drawn for _, drawn in found):
            self.seed = seeds[0]
        elif len(set(seeds)) > 1:
            raise ValueError(
                f"`{type(self).__name__}` must have the same `seed` on all "
                "workers. Give all workers the same number, or leave `seed` "
                f"out. Received: seeds of the workers {seeds}"
            )

    def take_drawn_seed(self, seed: int) -> bool:
        """Takes another seed, if the object drew its own, also after a trace.

        The caller must trace the training step again.

        Args:
            seed: The new seed.

        Returns:
            Whether the seed has changed.
        """
        if not self._seed_is_drawn or seed == self.seed:
            return False
        self.seed = seed
        return True

    def continue_with_seed(self, seed: int) -> None:
        """Takes the seed of a file, unless the user gave another seed.

        Args:
            seed: The seed of the run that wrote the file.
        """
        differs = self._seed_is_drawn and seed != self.seed
        if differs and self._seed_is_traced:
            warnings.warn(
                f"`{type(self).__name__}` has been used already, so it keeps "
                "its own noise. To continue a run exactly, load its file right "
                "after `compile` with a new optimizer and objective. "
                f"Received: seed={seed} in the file, here {self.seed}",
                stacklevel=2,
            )
        else:
            self.take_drawn_seed(seed)


def seeded(methods: Iterable[Any]) -> list[NoiseSeed]:
    """Returns the objects with seeds among methods and inside of them.

    Args:
        methods: Optimizer and objective of a model. An objective may have a
            method `seeded`, which returns its objects with seeds.
    """
    found = []
    for method in methods:
        if hasattr(method, "seeded"):
            found += method.seeded()
        elif isinstance(method, NoiseSeed):
            found.append(method)
    return found


def saved_seed(seeds: list[int]) -> np.ndarray:
    """Returns seeds as an array that Keras can write to a file."""
    return np.asarray(seeds, "int64")


def split_store(store: Any) -> tuple[dict[str, Any], list[int]]:
    """Returns the variables of a file and its seeds, `[]` for older files.

    Args:
        store: What Keras passes to `load_own_variables`.
    """
    variables = {key: store[key] for key in store.keys() if key != SAVED}  # noqa: SIM118
    if SAVED not in store.keys():  # noqa: SIM118
        return variables, []
    return variables, [int(seed) for seed in np.asarray(store[SAVED])]
