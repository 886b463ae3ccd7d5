"""Objects in files, whose class a file names by its kind, without pickle."""

import abc
import os
from collections.abc import Mapping
from typing import Any
from typing import ClassVar

from keras_bdl._arguments import did_you_mean
from keras_bdl._saving._state_file import write_state


class SavedByKind(abc.ABC):
    """Base of a family of classes whose objects are saved as nested states.

    The base of a family is `class Posterior(SavedByKind, family="a posterior")`
    and gets a registry `kinds` of all classes below.

    Attributes:
        kinds: The classes of the family by `kind`.
        kind: Name of the class in files, such as `"keras_bdl>Gaussian"`.
    """

    kinds: ClassVar[dict[str, Any]] = {}
    kind: ClassVar[str]
    _family: ClassVar[str]

    def __init_subclass__(cls, family: str | None = None, **kwargs: Any):
        super().__init_subclass__(**kwargs)
        if family is not None:
            cls.kinds, cls._family = {}, family
            return
        package = cls.__module__.partition(".")[0]
        cls.kind = f"{package}>{cls.__name__}"
        cls.kinds[cls.kind] = cls

    @abc.abstractmethod
    def get_state(self) -> dict[str, Any]:
        """Returns the content of a saved file as nested dicts and arrays."""

    def save(self, path: str | os.PathLike) -> None:
        """Writes this object to one file, without the model.

        The function `load` of the same folder reads the file. Several workers
        with the same object may write to one path.

        Args:
            path: The file. An existing file is replaced.
        """
        write_state(path, self.get_state())

    @classmethod
    def class_of_state(cls, state: Any) -> Any:
        """Returns the class of this family that a state names."""
        kind = state.get("kind") if isinstance(state, Mapping) else None
        if kind not in cls.kinds:
            raise ValueError(
                f"The file must hold {cls._family} of a known kind. Import the "
                "module that defines its class before you load the file. "
                f"{did_you_mean(kind, cls.kinds)}"
                f"Received: kind={kind!r}, known: {sorted(cls.kinds)}"
            )
        return cls.kinds[kind]
