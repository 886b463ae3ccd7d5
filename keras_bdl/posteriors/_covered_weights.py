"""Which weights of a model a posterior covers: trained, frozen and excluded.

A user may freeze a model after training, for example to serve it. The posterior
still belongs to the weights that were trained.
"""

import dataclasses
import hashlib
import math
import re
import warnings
from collections.abc import Iterable
from collections.abc import Sequence
from typing import Any
from typing import Self

import keras
import numpy as np

from keras_bdl import _keras
from keras_bdl._arguments import did_you_mean

# Entries of each variable that go into a fingerprint.
_ENTRIES = 256


class Structure:
    """Checks that a posterior and a model belong to one architecture.

    `check` compares the number of variables, their order, their shapes and
    their leaf names (`kernel`, `gamma`). `check` ignores the names of layers:
    Keras numbers layers, and two builds of one architecture get different
    numbers. With `names=None`, names are not compared.
    """

    def __init__(
        self, shapes: Sequence[Sequence], names: Sequence[str] | None = None
    ):
        self.shapes = [tuple(shape) for shape in shapes]
        self.names = None if names is None else [_leaf(n) for n in names]
        if names is not None and len(names) != len(shapes):
            raise ValueError(
                "`names` must have one entry for each variable. Received: "
                f"{len(names)} names for {len(shapes)} variables"
            )

    @classmethod
    def of(cls, variables: Sequence) -> "Structure":
        """Returns the structure of a list of Keras variables."""
        return cls([v.shape for v in variables], [v.name for v in variables])

    def fits(self, variables: Sequence) -> bool:
        """Returns whether variables have these names and shapes."""
        return [tuple(v.shape) for v in variables] == self.shapes and (
            self.names is None
            or [_leaf(v.name) for v in variables] == self.names
        )

    def check(self, variables: Sequence) -> None:
        """Raises an error that names the first variable that differs."""
        for i, variable in enumerate(variables[: len(self.shapes)]):
            name = _leaf(variable.name)
            expected = name if self.names is None else self.names[i]
            if (expected, self.shapes[i]) == (name, tuple(variable.shape)):
                continue
            raise ValueError(
                "The posterior must belong to this architecture. Variable "
                f"{i}, `{variable.path}`, must be {expected!r} of shape "
                f"{self.shapes[i]}. Received: {name!r} of shape "
                f"{tuple(variable.shape)}. Build the model like the trained "
                "one."
            )
        if len(variables) != len(self.shapes):
            raise ValueError(
                "The posterior must belong to this architecture. It covers "
                f"{len(self.shapes)} variables. Received: a model with "
                f"{len(variables)} of them; {self._first_extra(variables)}."
            )

    def get_state(self) -> dict[str, Any]:
        """Returns the arguments as a dict of lists."""
        return {"shapes": [list(s) for s in self.shapes], "names": self.names}

    def _first_extra(self, variables: Sequence) -> str:
        known = len(self.shapes)
        if len(variables) > known:
            return f"`{variables[known].path}` is not in the posterior"
        name = "" if self.names is None else f", {self.names[len(variables)]!r}"
        return (
            f"variable {len(variables)} of the posterior{name} of shape "
            f"{self.shapes[len(variables)]}, is not in the model"
        )


def _leaf(name: str) -> str:
    """Returns a name without the number that Keras may have appended."""
    return re.sub(r"_\d+$", "", name)


def check_built(model: keras.Model) -> None:
    """Raises an error if the model has no variables yet."""
    if not model.built:
        raise ValueError(
            "`model` must be built, so that its variables exist. Call the "
            f"model on data first. Received: model={model.name!r}"
        )


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
        built: Positions of the weights for which the optimizer was built;
            `()` if unknown.
    """

    count: int
    trained: tuple[int, ...]
    frozen: tuple[int, ...]
    built: tuple[int, ...] = ()

    @classmethod
    def of(
        cls, model: keras.Model, trained: Sequence[Any] | None = None
    ) -> Self:
        """Returns the weights that a model trains, by default those of now."""
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
        """Returns this object with the weights that the optimizer knows."""
        optimizer = getattr(model, "optimizer", None)
        if optimizer is None or not optimizer.built:
            return self
        known = _keras.optimized_variables(optimizer)
        return dataclasses.replace(self, built=_positions(model.weights, known))

    def fits(self, model: keras.Model) -> bool:
        """Returns whether a model has as many weights."""
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
        """Returns the object that `get_state` described; `None` for `None`."""
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
    """Returns the weights of a model at some positions of `model.weights`."""
    weights = model.weights
    return [weights[i] for i in positions]


def _positions(weights: Sequence, variables: Sequence) -> tuple[int, ...]:
    wanted = {id(v) for v in variables}
    return tuple(i for i, v in enumerate(weights) if id(v) in wanted)


def covered_variables(
    model: keras.Model,
    record: TrainedWeights | None,
    structure: Structure | None,
) -> list:
    """Returns the variables of a posterior, also if they are frozen now."""
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

    `record` is `None` if this process has neither trained the model nor loaded
    it. `known` are the variables for which the method has a state.
    """
    ids = {id(v) for v in known}
    if record is not None and record.trained and record.fits(model):
        return at_positions(model, record.trained)
    if not ids:
        return model.trainable_variables
    return [v for v in model.weights if id(v) in ids]


def frozen_variables(
    model: keras.Model, trained: Sequence[Any] | None = None
) -> list:
    """Returns the weights that training does not change.

    These are the weights of a layer with `trainable=False`, the kernel of a
    layer with `enable_lora`, and all weights of a quantised layer but its
    adapter. The BatchNorm statistics of other layers change in training.
    `trained` are the variables that training moved, by default those that are
    trainable now.
    """
    if trained is None:
        trained = model.trainable_variables
    moved = {id(v) for v in trained}
    constant: set[int] = set()
    for layer in _keras.all_layers(model):
        quantised = getattr(layer, "quantization_mode", None) is not None
        learns, others = _keras.own_variables(layer)
        constant.update(id(v) for v in learns)
        was_trained = (
            any(id(v) in moved for v in learns) if learns else layer.trainable
        )
        if quantised or not was_trained:
            constant.update(id(v) for v in others)
    return [
        v for v in model.weights if id(v) in constant and id(v) not in moved
    ]


def made_trainable(layer: keras.layers.Layer) -> list:
    """Returns the weights that are trainable if no layer is frozen."""
    made = {
        id(v)
        for part in _keras.all_layers(layer)
        for v in _keras.own_variables(part)[0]
    }
    return [v for v in layer.weights if id(v) in made]


def unfrozen_weights(
    model: keras.Model, frozen: Sequence[Any] | None = None
) -> list:
    """Returns `model.weights` without the frozen variables."""
    if frozen is None:
        frozen = frozen_variables(model)
    left_out = {id(v) for v in frozen}
    return [v for v in model.weights if id(v) not in left_out]


def check_frozen_weights(
    model: keras.Model, expected: str | None, frozen: Sequence[Any]
) -> None:
    """Raises an error if frozen weights differ from a posterior's fingerprint.

    The fingerprint `None` accepts any model.
    """
    if expected not in (None, fingerprint(model, frozen)):
        raise ValueError(
            "The posterior must be used with the frozen weights that it "
            "was trained with. Load the same pretrained weights, and "
            "freeze the same layers. A `.keras` file does not keep them if "
            "there are adapters: Keras adds adapters to the kernels. "
            f"Received: model={model.name!r} with other frozen weights"
        )


def check_adapters(model: keras.Model) -> None:
    """Raises an error for adapters (LoRA) that Keras has merged.

    A `.keras` file has the sum of kernel and adapter as the kernel, and zeros
    as both factors of the adapter. Samples around two zeros are no samples of
    the posterior that was learned.
    """
    for layer in _keras.all_layers(model):
        if not getattr(layer, "lora_enabled", False):
            continue
        factors = [
            v
            for v in _keras.own_variables(layer)[0]
            if v.name.startswith("lora_") and v.name.endswith(("_a", "_b"))
        ]
        if len(factors) == 2 and not any(
            np.any(keras.ops.convert_to_numpy(v)) for v in factors
        ):
            raise ValueError(
                "A posterior of adapters (LoRA) needs the trained adapters. "
                "Keras adds them to the kernels when it writes a `.keras` or "
                "weights file, and sets them to zero. Save the posterior with "
                "`posterior.save` before, and load it into the original "
                "network with `enable_lora`. Received: "
                f"{layer.name!r}, whose adapter is zero"
            )


def fingerprint(
    model: keras.Model, frozen: Sequence[Any] | None = None
) -> str | None:
    """Returns a short text that differs for other frozen weights.

    The text depends on the shape of each frozen variable and on up to 256 of
    its numbers. It is `None` if nothing is frozen.
    """
    if frozen is None:
        frozen = frozen_variables(model)
    if not frozen:
        return None
    found = hashlib.blake2b(digest_size=16)
    for variable in frozen:
        step = max(1, -(-math.prod(variable.shape) // _ENTRIES))
        numbers = keras.ops.reshape(variable, (-1,))[::step]
        numbers = keras.ops.convert_to_numpy(keras.ops.cast(numbers, "float32"))
        found.update(f"{tuple(variable.shape)}".encode())
        found.update(np.ascontiguousarray(numbers).tobytes())
    return found.hexdigest()


def excluded_variables(model: keras.Model, names: Iterable[str]) -> set[int]:
    """Returns the ids of the variables without prior and noise, also if frozen.

    `names` has names of layers, of classes of layers (including all layers
    inside) or of variables, such as `"bias"`.
    """
    found: set[int] = set()
    known = {"BatchNormalization", "LearnedStddev"}
    for layer in _keras.all_layers(model):
        own = {layer.name, *(c.__name__ for c in type(layer).__mro__)}
        known |= own
        if own.intersection(names):
            found.update(id(v) for v in made_trainable(layer))
    # Also variables that were frozen after training.
    for variable in made_trainable(model):
        known.add(variable.name)
        if variable.name in names:
            found.add(id(variable))
    unknown = sorted(set(names) - known)
    if unknown:
        raise ValueError(
            "`exclude_from_inference` must name layers, classes of layers or "
            f"variables of the model. {did_you_mean(unknown[0], known)}"
            f"Received: {unknown}, unknown in "
            f"model={model.name!r}"
        )
    return found


def check_weights(
    owner: str,
    uncertain: Sequence,
    variables: Sequence,
    *,
    prior: str = "prior",
) -> None:
    """Raises an error or warns if weights cannot have a valid posterior.

    `owner` is the class that fits a posterior to `uncertain` and updates all
    `variables`. `prior` is the name of its argument for the prior.
    """
    check_any_weight(owner, variables)
    _refuse(
        owner,
        "have no constraint, which would truncate the posterior",
        [v for v in uncertain if v.constraint is not None],
    )
    _refuse(
        owner,
        "be float32 or float64, because half precision rounds its small steps "
        "to zero; use a mixed policy such as `mixed_bfloat16` for speed",
        [v for v in variables if v.dtype not in ("float32", "float64")],
    )
    regularized = [v.path for v in uncertain if v.regularizer is not None]
    if regularized:
        warnings.warn(
            f"`{owner}` gives every weight a prior, `{prior}`. A regularizer "
            "is a second prior, which moves the mean but not the curvature. "
            "Remove the regularizer, or exclude the weight with "
            f"`exclude_from_inference`. Received: regularizers of "
            f"{regularized}",
            stacklevel=3,
        )


def check_any_weight(owner: str, weights: Sequence) -> None:
    """Raises an error if the list of weights to fit is empty."""
    if not weights:
        raise ValueError(
            f"`{owner}` needs a trainable weight outside of "
            "`exclude_from_inference`. Set `trainable=True` on a layer before "
            "`compile`, or exclude fewer layers. Received: a model without "
            "such a weight"
        )


def _refuse(owner: str, rule: str, variables: Sequence) -> None:
    if variables:
        raise ValueError(
            f"Every variable that `{owner}` updates must {rule}. "
            f"Received: {[v.path for v in variables]}"
        )
