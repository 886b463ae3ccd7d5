"""The seed of an optimizer's noise in the files of Keras."""

from typing import Any

from keras_bdl._random._noise_seed import SAVED
from keras_bdl._random._noise_seed import NoiseSeed
from keras_bdl._random._noise_seed import saved_seed
from keras_bdl._random._noise_seed import split_store


class SavesSeed(NoiseSeed):
    """Saves the seed with the state, so that `load_weights` restores both.

    Keras's `BackupAndRestore` saves weights and state, but no config.
    """

    # Defined by `keras.optimizers.Optimizer`.
    variables: list

    def save_own_variables(self, store: Any) -> None:
        """Saves the variables and the seed."""
        super().save_own_variables(store)  # type: ignore[misc]
        store[SAVED] = saved_seed([self.seed])

    def load_own_variables(self, store: Any) -> None:
        """Loads the variables, and the seed if the user gave none."""
        variables, seeds = split_store(store)
        super().load_own_variables(variables)  # type: ignore[misc]
        # With another number of variables, Keras has skipped the state.
        if seeds and len(variables) == len(self.variables):
            self.continue_with_seed(*seeds)
