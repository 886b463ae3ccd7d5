"""Families of classes whose files hold the name of their class."""

from typing import Any
from typing import ClassVar
from typing import Self

from keras_bdl._arguments import did_you_mean


class SavedKind:
    """Base of the first class of a family, which knows all classes after it.

    Attributes:
        kinds: The imported classes of the family, by their name in files.
        kind: Name of the class in files, such as `"keras_bdl>Ensemble"`.
    """

    kinds: ClassVar[dict[str, Any]]
    kind: ClassVar[str]

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if SavedKind in cls.__bases__:
            cls.kinds = {}
            return
        package = cls.__module__.partition(".")[0]
        cls.kind = f"{package}>{cls.__name__}"
        cls.kinds[cls.kind] = cls

    @classmethod
    def kind_in(cls, state: Any, family: str) -> type[Self]:
        """Returns the class that a state names, or raises an error."""
        kind = state.get("kind") if isinstance(state, dict) else None
        if kind not in cls.kinds:
            raise ValueError(
                f"The file must hold {family} of a known kind. Import the "
                "module that defines its class before you load the file. "
                f"{did_you_mean(kind, cls.kinds)}"
                f"Received: kind={kind!r}, known: {sorted(cls.kinds)}"
            )
        return cls.kinds[kind]
