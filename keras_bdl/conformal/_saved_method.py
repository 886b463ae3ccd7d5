"""Base class of conformal methods, their files, and how to load them."""

import abc
import inspect
import os
from collections.abc import Mapping
from typing import Any
from typing import ClassVar
from typing import Self

from keras_bdl._arguments import ShowsArguments
from keras_bdl._arguments import did_you_mean
from keras_bdl._inherited_arguments import InheritedArguments
from keras_bdl._saving._state_file import read_state
from keras_bdl._saving._state_file import write_state


class SavedMethod(InheritedArguments, ShowsArguments, abc.ABC):
    """Base of all conformal methods: saves what `fit` found, without pickle.

    Attributes:
        kind: Name of the class in files.
    """

    kinds: ClassVar[dict[str, type["SavedMethod"]]] = {}
    kind: ClassVar[str]

    def __init_subclass__(cls, **kwargs):
        super().__init_subclass__(**kwargs)
        package = cls.__module__.partition(".")[0]
        cls.kind = f"{package}>{cls.__name__}"
        SavedMethod.kinds[cls.kind] = cls

    @abc.abstractmethod
    def __call__(self, prediction: Any) -> Any:
        """Returns the sets of a prediction.

        Args:
            prediction: A prediction of the model that `fit` received.
        """

    def save(self, path: str | os.PathLike) -> None:
        """Writes the fitted method to one file, without pickle.

        `keras_bdl.conformal.load` reads the file.

        Args:
            path: The file. An existing file is replaced.
        """
        write_state(path, self.get_state())

    def get_config(self) -> dict[str, Any]:
        """Returns every constructor argument."""
        parameters = inspect.signature(type(self)).parameters
        return {name: getattr(self, name) for name in parameters}

    def get_state(self) -> dict[str, Any]:
        """Returns the content of a saved file as nested dicts and arrays."""
        return {
            "kind": self.kind,
            "config": self.get_config(),
            "fitted": self._get_fitted(),
        }

    @classmethod
    def from_state(
        cls,
        state: dict[str, Any],
        custom_objects: Mapping[str, Any] | None = None,
    ) -> Self:
        """Returns the method that `get_state` described.

        Args:
            state: The result of `get_state`.
            custom_objects: Functions of the user by name. Defaults to `None`.
        """
        method = cls(**cls._arguments(state["config"], custom_objects or {}))
        method._set_fitted(state["fitted"])
        return method

    @classmethod
    def _arguments(cls, config, custom_objects):
        """Returns the constructor arguments of a config."""
        del custom_objects
        return config

    @abc.abstractmethod
    def _get_fitted(self) -> dict[str, Any]:
        """Returns what `fit` found, or raises an error before `fit`."""

    @abc.abstractmethod
    def _set_fitted(self, fitted: dict[str, Any]) -> None:
        """Sets what `_get_fitted` returned."""


def load(
    path: str | os.PathLike,
    *,
    custom_objects: Mapping[str, Any] | None = None,
) -> Any:
    """Returns the fitted conformal method that `save` wrote to a file.

    Args:
        path: The file.
        custom_objects: Your loss functions of `RiskControl` by name. Defaults
            to `None`.

    Example:

    ```python
    conformal = keras_bdl.conformal.LAC().fit(prediction, y)
    conformal.save("sets.bdl")
    sets = keras_bdl.conformal.load("sets.bdl")(prediction)
    ```
    """
    return from_state(read_state(path), custom_objects)


def from_state(
    state: dict[str, Any], custom_objects: Mapping[str, Any] | None = None
) -> Any:
    """Returns the fitted method that `get_state` described.

    Args:
        state: The result of `get_state`.
        custom_objects: Functions of the user by name. Defaults to `None`.
    """
    kind = state.get("kind") if isinstance(state, dict) else None
    if kind not in SavedMethod.kinds:
        raise ValueError(
            "The file must hold a conformal method of a known kind. Import the "
            "module that defines its class before you load the file. "
            f"{did_you_mean(kind, SavedMethod.kinds)}"
            f"Received: kind={kind!r}, known: {sorted(SavedMethod.kinds)}"
        )
    return SavedMethod.kinds[kind].from_state(state, custom_objects)
