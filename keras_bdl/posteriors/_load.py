"""Loading of posteriors from files."""

import os
from typing import Any

from keras_bdl._arguments import did_you_mean
from keras_bdl._saving._state_file import read_state
from keras_bdl.posteriors._posterior import Posterior
from keras_bdl.posteriors._trained_weights import TrainedWeights


def load(path: str | os.PathLike, *, stream: bool = False) -> Posterior:
    """Returns the posterior that `Posterior.save` wrote to a file.

    Args:
        path: The file.
        stream: Whether the members of an `Ensemble` stay on disk until a
            sample needs them. Defaults to `False`.

    Example:

    ```python
    posterior.save("posterior.bdl")
    posterior = keras_bdl.posteriors.load("posterior.bdl")
    ```
    """
    return from_state(read_state(path, lazy=stream))


def from_state(state: dict[str, Any]) -> Posterior:
    """Returns the posterior that `Posterior.get_state` described.

    Args:
        state: The result of `get_state`.
    """
    kind = state.get("kind") if isinstance(state, dict) else None
    if kind not in Posterior.kinds:
        raise ValueError(
            "The file must hold a posterior of a known kind. Import the module "
            "that defines its class before you load the file. "
            f"{did_you_mean(kind, Posterior.kinds)}"
            f"Received: kind={kind!r}, known: {sorted(Posterior.kinds)}"
        )
    posterior = Posterior.kinds[kind].from_state(state)
    return posterior.beside(
        TrainedWeights.from_state(state.get("trained_weights")),
        state.get("frozen_weights"),
    )
