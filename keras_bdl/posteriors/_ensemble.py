"""Ensembles of networks, and samples of Markov chains."""

from collections.abc import Sequence
from typing import Any

import keras
import numpy as np

from keras_bdl._arguments import as_list
from keras_bdl._arguments import check_bool
from keras_bdl._random._seeds import sequence
from keras_bdl._saving._state_file import LazyArray
from keras_bdl.distribute._workers import weights_of_first_replica
from keras_bdl.posteriors._covered_weights import Structure
from keras_bdl.posteriors._covered_weights import at_positions
from keras_bdl.posteriors._covered_weights import check_built
from keras_bdl.posteriors._covered_weights import unfrozen_weights
from keras_bdl.posteriors._gaussian import all_finite
from keras_bdl.posteriors._gaussian import read_only
from keras_bdl.posteriors._posterior import Posterior


class Ensemble(Posterior):
    """Several trained networks or chain samples, all equally likely.

    Use this class to combine networks that were trained from different
    initial weights. For samplers, `keras_bdl.callbacks.SampleCollector`
    returns an `Ensemble`.

    A member has all arrays that `model.get_weights()` returns, including
    BatchNorm statistics. The sample with seed `s` is member `s` modulo the
    number of members. After `keras_bdl.posteriors.load(path, stream=True)`,
    members stay on disk, and each sample reads one member.

    Args:
        members: A list of arrays for each member.
        names: The `name` of each variable, to recognise the model. Defaults
            to `None`: only shapes are compared.
        covers_frozen: Whether a member also has the frozen weights of the
            model. Defaults to `True`. `SampleCollector` leaves them out.

    Example:

    ```python
    other = keras.models.clone_model(model)  # with weights of its own
    pair = keras_bdl.posteriors.Ensemble.from_models([model, other])
    prediction = keras_bdl.predict(model, x, pair)
    ```
    """

    can_be_linearized = False

    def __init__(
        self,
        members: Sequence,
        *,
        names: Sequence[str] | None = None,
        covers_frozen: bool = True,
    ):
        self.covers_frozen = check_bool("covers_frozen", covers_frozen)
        members = as_list("members", members, "lists of arrays")
        if not members:
            raise ValueError(
                "`members` must hold the weights of at least one network. "
                "Received: members=[]"
            )
        self._members = [
            [_as_weight(a, (m, i)) for i, a in enumerate(_as_member(m, member))]
            for m, member in enumerate(members)
        ]
        shapes = [a.shape for a in self._members[0]]
        for m, member in enumerate(self._members):
            others = [a.shape for a in member]
            if others != shapes:
                raise ValueError(
                    "`members` must all have the shapes of the first member. "
                    f"Received: members[{m}] with {_difference(others, shapes)}"
                )
        super().__init__(Structure(shapes, names))

    @classmethod
    def from_models(cls, models: Sequence[keras.Model]) -> "Ensemble":
        """Returns the ensemble of trained models of one architecture.

        Args:
            models: A list of built models.
        """
        models = as_list("models", models, "Keras models")
        if not models:
            return cls([])
        for model in models:
            check_built(model)
        structure = Structure.of(models[0].weights)
        for model in models[1:]:
            structure.check(model.weights)
        members = [weights_of_first_replica(model) for model in models]
        return cls(members, names=structure.names)

    def __len__(self) -> int:
        return len(self._members)

    @property
    def is_point(self) -> bool:
        """Whether the ensemble has only one member."""
        return len(self) == 1

    def variables(self, model: keras.Model) -> list:
        """Returns all weights, including BatchNorm statistics.

        With `covers_frozen=False`, frozen weights are left out.
        """
        if self.covers_frozen:
            return model.weights
        record = self.trained_weights
        if record is None or not record.fits(model):
            return unfrozen_weights(model)
        return unfrozen_weights(model, at_positions(model, record.frozen))

    def needs_batch_norm(self, seed: int) -> bool:
        """Returns `False`: each member has its own statistics."""
        return False

    def seeds(self, seed: int, samples: int) -> list[int]:
        """Returns consecutive seeds, which select the members in turn."""
        start = int(sequence(seed).generate_state(1)[0])
        return [start + i for i in range(1 if self.is_point else samples)]

    def sample(self, seed: int) -> list[np.ndarray]:
        """Returns one member, read-only."""
        sequence(seed)  # raises an error for an invalid seed
        return [np.asarray(a) for a in self._members[seed % len(self)]]

    def mean(self) -> list[np.ndarray]:
        """Returns the average of the weights.

        Use the average for samples of one chain only. The average of networks
        from different initial weights predicts badly.
        """
        total = [np.zeros(a.shape) for a in self._members[0]]
        for member in self._members:
            for t, a in zip(total, member, strict=True):
                t += np.asarray(a, "float64")
        return [
            (t / len(self)).astype(a.dtype)
            for t, a in zip(total, self._members[0], strict=True)
        ]

    def get_state(self) -> dict[str, Any]:
        """Returns all arguments."""
        return {
            **super().get_state(),
            "members": self._members,
            "covers_frozen": self.covers_frozen,
        }

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> "Ensemble":
        """Returns the posterior that `get_state` described."""
        return cls(
            state["members"],
            names=state["structure"]["names"],
            covers_frozen=state["covers_frozen"],
        )

    def _facts(self) -> dict[str, Any]:
        return {**super()._facts(), "num_members": len(self)}


def _as_member(position: int, member: Any) -> list:
    if isinstance(member, keras.Model):
        raise ValueError(
            "`members` must hold lists of arrays. Use "
            "`Ensemble.from_models(models)` for trained models. Received: "
            f"members[{position}], the model {member.name!r}"
        )
    return as_list(f"members[{position}]", member, "arrays")


def _as_weight(array: Any, position: tuple[int, int]) -> Any:
    if isinstance(array, LazyArray):
        return array
    array = np.asarray(array)
    if not all_finite(array):
        raise ValueError(
            "`members` must be finite. Received: NaN or infinity in "
            "members[{}][{}]. Leave out networks that "
            "diverged.".format(*position)
        )
    return read_only(array)


def _difference(received: list, expected: list) -> str:
    for i, (r, e) in enumerate(zip(received, expected, strict=False)):
        if r != e:
            return f"array {i} of shape {r}, expected {e}"
    return f"{len(received)} arrays, expected {len(expected)}"
