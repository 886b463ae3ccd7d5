"""Base class of the callbacks that collect weights."""

from typing import Any

from keras_bdl._memory import check_memory
from keras_bdl.callbacks._stateful_callback import StatefulCallback
from keras_bdl.posteriors._covered_weights import TrainedWeights
from keras_bdl.posteriors._covered_weights import check_adapters
from keras_bdl.posteriors._covered_weights import fingerprint


class CollectingCallback(StatefulCallback):
    """Base of callbacks that collect the unfrozen weights of one model.

    All collections must have the same frozen weights beside them. A subclass
    returns `needed_memory`, calls `check_model` when training begins and
    `check_weights` before each collection.
    """

    _frozen_weights: str | None = None  # a fingerprint
    _trained_weights: TrainedWeights | None = None
    _is_memory_checked = False

    def needed_memory(self) -> tuple[str, int, str] | None:
        """Returns the arguments of `check_memory`, for all collections.

        The result is `None` if no memory is needed, or if the number of
        collections is unknown.
        """
        raise NotImplementedError

    def check_model(self, is_first: bool) -> None:
        """Raises an error if the model cannot be collected.

        Args:
            is_first: Whether nothing has been collected.
        """
        self.keep_to_one_model()
        self.refuse_frozen_model()
        self._is_memory_checked = False
        # `fit` may build the model later.
        if self.model.built:
            self._check(is_first)

    def check_weights(self, is_first: bool) -> None:
        """Raises an error if the weights do not belong to those collected.

        Args:
            is_first: Whether nothing has been collected.
        """
        if is_first:
            check_adapters(self.model)
            self._frozen_weights = fingerprint(self.model)
            self._trained_weights = TrainedWeights.of(self.model)
        self._check(is_first)

    def state_of_training(self) -> dict[str, Any]:
        """Returns what a checkpoint keeps of trained and frozen weights."""
        record = self._trained_weights
        return {
            "frozen_weights": self._frozen_weights,
            "trained_weights": record and record.get_state(),
        }

    def set_state_of_training(self, state: dict[str, Any]) -> None:
        """Continues from `state_of_training`.

        Args:
            state: A dictionary with the entries of `state_of_training`.
        """
        self._frozen_weights = state["frozen_weights"]
        record = state.get("trained_weights")
        self._trained_weights = TrainedWeights.from_state(record)

    def _check(self, is_first):
        if not is_first and fingerprint(self.model) != self._frozen_weights:
            raise ValueError(
                f"`{type(self).__name__}` must collect the same weights all "
                "the time. Do not freeze or unfreeze layers between two "
                "`fit`s, or use a new callback. "
                f"Received: model={self.model.name!r} with other frozen weights"
            )
        needed = self.needed_memory()
        if is_first and needed is not None and not self._is_memory_checked:
            check_memory(*needed)
            self._is_memory_checked = True
