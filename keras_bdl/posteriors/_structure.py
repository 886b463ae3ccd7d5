"""Names and shapes of the variables that a posterior covers."""

import re
from collections.abc import Sequence
from typing import Any

import keras


class Structure:
    """Checks that a posterior and a model belong to one architecture.

    `check` compares the number of variables, their order, their shapes and
    their leaf names (`kernel`, `gamma`). `check` ignores the names of layers:
    Keras numbers layers, and two builds of one architecture get different
    numbers.

    Args:
        shapes: Shape of each variable.
        names: Leaf name of each variable. Defaults to `None`: names are not
            compared.
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
        """Returns the structure of a list of Keras variables.

        Args:
            variables: The variables.
        """
        return cls([v.shape for v in variables], [v.name for v in variables])

    def fits(self, variables: Sequence) -> bool:
        """Returns whether variables have these names and shapes.

        Args:
            variables: Keras variables of a model.
        """
        return [tuple(v.shape) for v in variables] == self.shapes and (
            self.names is None
            or [_leaf(v.name) for v in variables] == self.names
        )

    def check(self, variables: Sequence) -> None:
        """Raises an error that names the first variable that differs.

        Args:
            variables: Keras variables of a model.
        """
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

    def _first_extra(self, variables):
        known = len(self.shapes)
        if len(variables) > known:
            return f"`{variables[known].path}` is not in the posterior"
        name = "" if self.names is None else f", {self.names[len(variables)]!r}"
        return (
            f"variable {len(variables)} of the posterior{name} of shape "
            f"{self.shapes[len(variables)]}, is not in the model"
        )


def _leaf(name):
    """Returns a name without the number that Keras may have appended."""
    return re.sub(r"_\d+$", "", name)


def check_built(model: keras.Model) -> None:
    """Raises an error if the model has no variables yet.

    Args:
        model: Any Keras model.
    """
    if not model.built:
        raise ValueError(
            "`model` must be built, so that its variables exist. Call the "
            f"model on data first. Received: model={model.name!r}"
        )
