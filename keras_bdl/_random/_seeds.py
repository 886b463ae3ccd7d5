"""Seeds: of the noise of a training, and of samples after it."""

import warnings
from collections.abc import Iterable
from typing import Any

import numpy as np
import tensorflow as tf

from keras_bdl import _keras
from keras_bdl._arguments import check_number
from keras_bdl._arguments import check_seed
from keras_bdl._backend import in_several_workers
from keras_bdl._backend import is_tracing
from keras_bdl._backend import outside_of_trace
from keras_bdl.distribute._workers import numbers_of_workers

# The key of seeds in the file of an optimizer or objective.
_SAVED = "seed"


def generator(seed: int, *stream: int) -> np.random.Generator:
    """Returns a NumPy generator for a sample; `stream` separates its uses."""
    return np.random.default_rng(sequence(seed, *stream))


def sequence(seed: int, *stream: int) -> np.random.SeedSequence:
    """Returns the seed sequence of `generator`."""
    check_number("seed", seed, at_least=0, integer=True)
    return np.random.SeedSequence(int(seed), spawn_key=stream)


class NoiseSeed:
    """Gives an optimizer, objective or estimate the attribute `seed`.

    With `seed=None`, the object draws its seed once, when it is made. The draw
    depends on `keras.utils.set_random_seed`, like the initial weights of Keras.
    The config holds the drawn number, so a copy of the object has the same
    noise. A run that continues from a file takes the drawn seed of the file:
    Keras's `BackupAndRestore` saves weights and state, but no config.
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
        if is_tracing():
            self._seed_is_traced = True
        return self.seed

    def seeded(self) -> list["NoiseSeed"]:
        """Returns the objects with seeds: this one and those inside of it."""
        return [self]

    def agree_on_seed(self, strategy: Any = None) -> None:
        """Gives all workers of a strategy one seed; raises if they differ.

        All workers must call this method together.
        """
        strategy = strategy or tf.distribute.get_strategy()
        if not in_several_workers(strategy):
            return
        with outside_of_trace():
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
        """Takes another seed if the object drew its own; returns whether so.

        The caller must trace the training step again.
        """
        if not self._seed_is_drawn or seed == self.seed:
            return False
        self.seed = seed
        return True

    def continue_with_seed(self, seed: int) -> None:
        """Takes the seed of a file, unless the user gave another seed."""
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

    def save_own_variables(self, store: Any) -> None:
        """Saves the variables and the seeds."""
        super().save_own_variables(store)  # type: ignore[misc]
        seeds = [one.seed for one in self.seeded()]
        store[_SAVED] = np.asarray(seeds, "int64")

    def load_own_variables(self, store: Any) -> None:
        """Loads the variables, and the seeds that the user did not give."""
        variables = {key: store[key] for key in store.keys() if key != _SAVED}  # noqa: SIM118
        super().load_own_variables(variables)  # type: ignore[misc]
        own = getattr(self, "variables", variables)
        # With another number of variables, Keras has skipped the state. Older
        # files have no seeds.
        if len(variables) == len(own) and _SAVED in store.keys():  # noqa: SIM118
            seeds = [int(seed) for seed in np.asarray(store[_SAVED])]
            for one, seed in zip(self.seeded(), seeds, strict=False):
                one.continue_with_seed(seed)


def seeded(methods: Iterable[Any]) -> list[NoiseSeed]:
    """Returns the objects with seeds of the optimizer and the objective."""
    found: list[NoiseSeed] = []
    for method in methods:
        if hasattr(method, "seeded"):
            found += method.seeded()
    return found
