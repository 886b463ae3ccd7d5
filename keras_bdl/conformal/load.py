"""Loading of fitted conformal methods from files."""

import os
from collections.abc import Mapping
from typing import Any

from keras_bdl.conformal.saved_method import SavedMethod
from keras_bdl.saving.state_file import read_state


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
    return from_state(read_state(os.fspath(path)), custom_objects)


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
            f"Received: kind={kind!r}, known: {sorted(SavedMethod.kinds)}"
        )
    return SavedMethod.kinds[kind].from_state(state, custom_objects)
