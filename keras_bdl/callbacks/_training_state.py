"""The state of a training run, as arrays that `Checkpoint` saves."""

import inspect
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np

from keras_bdl import _keras
from keras_bdl._backend import in_several_workers
from keras_bdl._models._trainer import build_optimizer
from keras_bdl._protocols import OwnsVariables
from keras_bdl.callbacks._stateful_callback import StatefulCallback
from keras_bdl.distribute._replicas import variable_copies
from keras_bdl.distribute._workers import first_replica
from keras_bdl.distribute._workers import replica_arrays

_PLAIN = (bool, int, float, str, type(None), np.ndarray, np.generic)


def plain_attributes(callback: keras.callbacks.Callback) -> dict[str, Any]:
    """Returns attributes that are numbers, strings, arrays or lists of these.

    The result leaves out attributes with the name of a constructor argument:
    the callback of the new process has its own settings.
    """
    settings = {
        name
        for cls in type(callback).__mro__
        if "__init__" in vars(cls)
        for name in inspect.signature(vars(cls)["__init__"]).parameters
    }
    return {
        name: list(value) if isinstance(value, tuple) else value
        for name, value in vars(callback).items()
        if name not in settings and _is_plain(value)
    }


def _is_plain(value: Any) -> bool:
    if isinstance(value, (list, tuple)):
        return all(isinstance(item, _PLAIN) for item in value)
    return isinstance(value, _PLAIN)


def get_callback_states(
    stateful: Sequence[StatefulCallback],
    others: Sequence[keras.callbacks.Callback],
) -> list[dict[str, Any]]:
    """Returns the class and the state of each callback that is saved."""
    states = [c.get_state() for c in stateful]
    states += [plain_attributes(c) for c in others]
    return [
        {"class": type(callback).__name__, "state": state}
        for callback, state in zip((*stateful, *others), states, strict=True)
    ]


def set_callback_states(
    stateful: Sequence[StatefulCallback],
    others: Sequence[keras.callbacks.Callback],
    saved: list[dict[str, Any]],
) -> None:
    """Restores the states of callbacks."""
    setters = [c.set_state for c in stateful]
    setters += [vars(c).update for c in others]
    for set_state, one in zip(setters, saved, strict=True):
        set_state(one["state"])


def get_history(
    model: keras.Model, epoch: int, logs: dict | None
) -> dict[str, Any]:
    """Returns the history of the training, with the epoch that has just ended.

    Keras adds this epoch to the history only after all callbacks.
    """
    history = getattr(model, "history", None)
    if history is None:
        return {"epoch": [], "history": {}}
    epochs = list(history.epoch)
    values = {k: [float(v) for v in vs] for k, vs in history.history.items()}
    if logs is not None and epoch not in epochs:
        epochs.append(epoch)
        for name, value in logs.items():
            values.setdefault(name, []).append(float(value))
    return {"epoch": epochs, "history": values}


def set_history(model: keras.Model, saved: dict[str, Any]) -> None:
    """Restores a history."""
    history = getattr(model, "history", None)
    if history is not None:
        history.epoch = list(saved["epoch"])
        history.history = {k: list(v) for k, v in saved["history"].items()}


def get_example_count(model: keras.Model) -> dict[str, int]:
    """Returns how far `fit` has counted the training examples."""
    counter = getattr(model, "example_counter", None)
    return {} if counter is None else counter.get_state()


def set_example_count(model: keras.Model, saved: dict[str, int]) -> None:
    """Restores N, so that a resumed run does not begin with the estimate."""
    counter = getattr(model, "example_counter", None)
    if counter is not None and saved:
        counter.set_state(saved)


def _groups(model: keras.Model) -> dict[str, Any]:
    """Returns all variables that training changes, by group."""
    objective: Any = getattr(model, "objective", None)
    owns = isinstance(objective, OwnsVariables)
    return {
        # Weights and the states of the layers' seed generators.
        "model": model.variables,
        "optimizer": []
        if model.optimizer is None
        else model.optimizer.variables,
        "objective": objective.trainable_variables if owns else [],
        "metrics": model.metrics_variables,
        "random": [_keras.global_seed_generator().state],
    }


def get_training_state(model: keras.Model) -> dict[str, list]:
    """Returns the values of all variables of a model in training."""
    state: dict[str, list] = {}
    own: list[dict] = []  # variables whose values differ between replicas
    for group, variables in _groups(model).items():
        state[group] = []
        for variable in variables:
            copies = [copy.numpy() for copy in variable_copies(variable)]
            state[group].append({"path": variable.path, "copies": copies})
            if group != "optimizer" and not variable.trainable:
                own.append(state[group][-1])
    _add_other_workers(model.distribute_strategy, own)
    for variables in state.values():
        for one in variables:
            one["copies"] = _different(one["copies"])
    return state


def _add_other_workers(strategy: Any, own: Any) -> None:
    """Adds the values of the replicas of all other workers."""
    if not in_several_workers(strategy):
        return
    local = len(strategy.extended.worker_devices)
    for one in own:
        if len(one["copies"]) < local:  # created outside the strategy's scope
            one["copies"] = one["copies"][:1] * local
    copies = replica_arrays(
        strategy, [[one["copies"][r] for one in own] for r in range(local)]
    )
    for one, of_replicas in zip(own, zip(*copies, strict=True), strict=True):
        one["copies"] = list(of_replicas)


def _different(values: Any) -> Any:
    """Returns a single value if all are equal, else all values."""
    if all(np.array_equal(values[0], v, equal_nan=True) for v in values[1:]):
        return values[:1]
    return values


def check_training_state(model: keras.Model, state: dict[str, list]) -> None:
    """Raises an error if a state does not fit a model. Changes no value."""
    build_optimizer(model)
    for group, variables in _groups(model).items():
        if group != "metrics":
            _check(group, variables, state.get(group, []))


def set_training_state(
    model: keras.Model, state: dict[str, list], *, with_metrics: bool
) -> None:
    """Assigns the values of a state to the variables."""
    strategy = model.distribute_strategy
    replicas, first = strategy.num_replicas_in_sync, first_replica(strategy)
    groups = _groups(model)
    if not with_metrics:
        del groups["metrics"]
    for group, variables in groups.items():
        of_group = state.get(group, [])
        for variable, saved in zip(variables, of_group, strict=True):
            copies = variable_copies(variable)
            values = saved["copies"]
            if len(values) == replicas:
                values = values[first : first + len(copies)]
            if len(values) != len(copies):  # one value, or another strategy
                values = values[:1] * len(copies)
            for copy, value in zip(copies, values, strict=True):
                copy.assign(value)


def _check(group: Any, variables: Any, saved: Any) -> None:
    ours = [(v.path, tuple(v.shape)) for v in variables]
    theirs = [(s["path"], s["copies"][0].shape) for s in saved]
    for mine, other in zip(ours, theirs, strict=False):
        if mine[1] != other[1]:
            raise ValueError(
                f"The checkpoint was written with another {group}: "
                f"`{mine[0]}` has shape {mine[1]} here, `{other[0]}` has "
                f"shape {other[1]} in the checkpoint. Use another directory, "
                "or delete this one."
            )
    if len(ours) != len(theirs):
        raise ValueError(
            f"The checkpoint was written with another {group}, with "
            f"{len(theirs)} variables instead of {len(ours)}. Use another "
            "directory, or delete this one."
        )
