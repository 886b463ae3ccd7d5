"""Posteriors from files."""

from keras_bdl.posteriors.posterior import Posterior
from keras_bdl.saving.state_file import read_state


def load(path: str, stream: bool = False) -> Posterior:
    """Returns the posterior that `Posterior.save` wrote.

    Args:
        path: The file.
        stream: Whether the members of an `Ensemble` stay on disk until they
            are drawn. Defaults to `False`.
    """
    return from_state(read_state(path, lazy=stream))


def from_state(state: dict) -> Posterior:
    """Returns the posterior that `Posterior.get_state` described."""
    kind = state.get("kind") if isinstance(state, dict) else None
    if kind not in Posterior.kinds:
        raise ValueError(
            "The state must be one of a posterior of a known kind. Import the "
            "module that defines its class. "
            f"Received: kind={kind!r}, known: {sorted(Posterior.kinds)}"
        )
    return Posterior.kinds[kind].from_state(state)
