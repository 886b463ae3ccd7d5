"""Which weights of a model its training moved, and which were frozen.

A user may freeze a model after training, for example to serve it. The posterior
still belongs to the weights that were trained.
"""

import dataclasses
from collections.abc import Iterable
from collections.abc import Sequence
from typing import Any
from typing import Self

import keras

from keras_bdl import _keras
from keras_bdl.posteriors._frozen_weights import frozen_variables
from keras_bdl.posteriors._frozen_weights import made_trainable
from keras_bdl.posteriors._structure import Structure


@dataclasses.dataclass(frozen=True)
class TrainedWeights:
    """The trained and the frozen weights of a model, during its training.

    The attributes are positions in `model.weights`. The order of this list does
    not depend on `trainable`, so the positions stay valid when a layer is
    frozen or unfrozen later.

    Attributes:
        count: Number of all weights.
        trained: Positions of the weights that training moves.
        frozen: Positions of the weights that stay as they are. BatchNorm
            statistics of layers that are not frozen are in neither list.
        built: Positions of the weights for which the optimizer was built.
            Defaults to `()`, unknown.
    """

    count: int
    trained: tuple[int, ...]
    frozen: tuple[int, ...]
    built: tuple[int, ...] = ()

    @classmethod
    def of(
        cls, model: keras.Model, trained: Sequence[Any] | None = None
    ) -> Self:
        """Returns the weights that a model trains now.

        Args:
            model: A built Keras model.
            trained: The variables that training moved. Defaults to `None`:
                those that are trainable now.
        """
        if trained is None:
            trained = model.trainable_variables
        frozen = frozen_variables(model, trained)
        weights = model.weights
        return cls(
            len(weights),
            _positions(weights, trained),
            _positions(weights, frozen),
        )

    def built_for(self, model: keras.Model) -> Self:
        """Returns this object with the weights that the optimizer knows.

        Args:
            model: A compiled Keras model.
        """
        optimizer = getattr(model, "optimizer", None)
        if optimizer is None or not optimizer.built:
            return self
        known = _keras.optimized_variables(optimizer)
        return dataclasses.replace(self, built=_positions(model.weights, known))

    def fits(self, model: keras.Model) -> bool:
        """Returns whether a model has as many weights.

        Args:
            model: A built Keras model.
        """
        return self.count == len(model.weights)

    def get_state(self) -> dict[str, Any]:
        """Returns the attributes, as integers and lists."""
        state = dataclasses.asdict(self)
        return {
            name: list(value) if isinstance(value, tuple) else value
            for name, value in state.items()
        }

    @classmethod
    def from_state(cls, state: dict[str, Any] | None) -> Self | None:
        """Returns the object that `get_state` described; `None` for `None`.

        Args:
            state: The result of `get_state`, or `None`.
        """
        if state is None:
            return None
        return cls(
            int(state["count"]),
            *(
                tuple(int(i) for i in state.get(name, ()))
                for name in ("trained", "frozen", "built")
            ),
        )


def at_positions(model: keras.Model, positions: Iterable[int]) -> list:
    """Returns the weights of a model at some positions.

    Args:
        model: A built Keras model.
        positions: Positions in `model.weights`.
    """
    weights = model.weights
    return [weights[i] for i in positions]


def covered_variables(
    model: keras.Model,
    record: TrainedWeights | None,
    structure: Structure | None,
) -> list:
    """Returns the variables of a posterior, also if they are frozen now.

    Args:
        model: A built Keras model.
        record: The trained weights of the model that the posterior comes from,
            or `None` if they are unknown.
        structure: The structure of the posterior, or `None`.
    """
    if record is not None and record.fits(model):
        found = at_positions(model, record.trained)
        if structure is None or structure.fits(found):
            return found
    now = model.trainable_variables
    if structure is None or structure.fits(now):
        return now
    # A posterior of all weights, whose model was frozen afterwards.
    unfrozen = made_trainable(model)
    return unfrozen if structure.fits(unfrozen) else now


def learned_variables(
    model: keras.Model, record: TrainedWeights | None, known: Iterable
) -> list:
    """Returns the variables that a method has trained, frozen now or not.

    Args:
        model: A built Keras model.
        record: The trained weights, or `None` if this process has neither
            trained the model nor loaded it.
        known: The variables for which the method has a state. Empty if the
            method has none.
    """
    ids = {id(v) for v in known}
    if record is not None and record.trained and record.fits(model):
        return at_positions(model, record.trained)
    if not ids:
        return model.trainable_variables
    return [v for v in model.weights if id(v) in ids]


def _positions(weights, variables):
    wanted = {id(v) for v in variables}
    return tuple(i for i, v in enumerate(weights) if id(v) in wanted)
