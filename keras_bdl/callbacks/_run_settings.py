"""The settings of a run, which a resumed run must have too."""

import contextlib
import inspect
import json
import warnings
from collections.abc import Iterator
from typing import Any

import keras

from keras_bdl._data._dataset_size import DatasetSize
from keras_bdl._keras import batches_of_step
from keras_bdl._keras import inner_optimizer
from keras_bdl._random._seeds import seeded
from keras_bdl.distribute._workers import numbers_of_workers

_LEARNING_RATE = "learning_rate of the optimizer"


def command_of(model: keras.Model, params: dict[str, Any]) -> dict[str, Any]:
    """Returns the settings that must be the same in a resumed run."""
    optimizer = inner_optimizer(model)
    objective = getattr(model, "objective", None)
    settings = {
        **{
            f"{name} of the optimizer": value
            for name, value in _arguments(optimizer).items()
        },
        **{
            f"{name} of the objective": value
            for name, value in _arguments(objective).items()
        },
        "loss": model.loss,
        "train_samples": getattr(model, "train_samples", 1),
        "gradient_accumulation_steps": batches_of_step(model),
    }
    return {
        "optimizer": type(optimizer).__name__,
        "objective": None if objective is None else type(objective).__name__,
        "steps of an epoch": params["steps"],
        "steps_per_execution": int(model.steps_per_execution),
        "settings": {
            name: json.dumps(_description(value), sort_keys=True)
            for name, value in settings.items()
        },
    }


@contextlib.contextmanager
def saved_seeds(
    model: keras.Model, state: dict[str, Any] | None
) -> Iterator[None]:
    """Gives a model the seeds of a checkpoint, unless the block raises."""
    settings = {} if state is None else state["command"].get("settings", {})
    of_file = [
        (one, seed)
        for one, name, place in _seeds(model)
        if (seed := _found(settings.get(name), place)) is not None
    ]
    before = [one.seed for one, _ in of_file]
    changed = [one.take_drawn_seed(seed) for one, seed in of_file]
    if any(changed):
        # Functions that were traced before have the other seeds.
        model.make_train_function(force=True)
        model.test_function = model.predict_function = None
    try:
        yield
    except BaseException:
        for (one, _), seed in zip(of_file, before, strict=True):
            one.take_drawn_seed(seed)
        raise


def _seeds(model: keras.Model) -> Iterator[Any]:
    """Yields objects with seeds, and where `command_of` holds the seeds."""
    objective = getattr(model, "objective", None)
    for method, owner in (
        (inner_optimizer(model), "optimizer"),
        (objective, "objective"),
    ):
        for one in seeded([method]):
            if one is method:
                yield one, f"seed of the {owner}", ()
                continue
            # The config of an object that is an argument of the method.
            (name,) = (n for n, v in vars(method).items() if v is one)
            yield one, f"{name} of the {owner}", (1, "seed")


def _found(setting: Any, place: Any) -> Any:
    """Returns the value at a place in a setting, or `None`."""
    value: Any = None if setting is None else json.loads(setting)
    for key in place:
        try:
            value = value[key]
        except (LookupError, TypeError):
            return None
    return value


def check_command(
    directory: str, saved: dict[str, Any], ours: dict[str, Any], step: int
) -> None:
    """Raises an error if a run has other settings than its checkpoint.

    If only `learning_rate` is another number, the function warns instead.
    """
    names = ["optimizer", "objective"]
    if step:
        names.append("steps_per_execution")
        # For data without a length, the number of steps is `None`.
        if None not in (saved["steps of an epoch"], ours["steps of an epoch"]):
            names.append("steps of an epoch")
    differ = [name for name in names if saved[name] != ours[name]]
    if differ:
        raise ValueError(
            "A run must continue with the method that it began with, and "
            "within an epoch with the same batches. Use another directory, or "
            f"delete `{directory}`. Received: {_some(ours, differ)}, where the "
            f"checkpoint has {_some(saved, differ)}"
        )
    _check_settings(directory, saved.get("settings", {}), ours["settings"])


def check_workers(directory: str, strategy: Any, state: dict | None) -> None:
    """Raises an error if the workers have read different checkpoints."""
    place = [-1, -1] if state is None else [state["epoch"], state["step"]]
    read = numbers_of_workers(strategy, place)
    if any(other != read[0] for other in read):
        raise ValueError(
            "`directory` must be the same for all workers, such as a directory "
            "of a network disk, and for one training only. "
            f"Received: directory={directory!r}, in which the workers "
            f"find checkpoints of [epoch, step] {read}, -1 for none"
        )


def _check_settings(directory: str, saved: Any, ours: Any) -> None:
    """Raises for other hyper-parameters, warns for another learning rate."""
    differ = [
        name
        for name in sorted(saved.keys() & ours.keys())
        if saved[name] != ours[name]
    ]
    received = (
        f"Received: {_some(ours, differ)}, where the checkpoint has "
        f"{_some(saved, differ)}"
    )
    if differ == [_LEARNING_RATE] and _are_numbers(saved, ours):
        warnings.warn(
            "`Checkpoint` uses the learning rate of the checkpoint and ignores "
            "the new one. To change the rate during a run, use "
            "`keras.callbacks.LearningRateScheduler`. For another run, use "
            f"another directory, or delete `{directory}`. {received}",
            stacklevel=4,
        )
    elif differ:
        raise ValueError(
            "A run must continue with the loss and the hyper-parameters that "
            "it began with. Use another directory, or delete "
            f"`{directory}`. {received}"
        )


def _are_numbers(*settings: Any) -> bool:
    rates = [json.loads(one[_LEARNING_RATE]) for one in settings]
    return all(isinstance(rate, float) for rate in rates)


def _arguments(method: Any) -> Any:
    """Returns the constructor arguments of an optimizer or an objective."""
    names = {
        name
        for cls in type(method).__mro__
        if "__init__" in vars(cls)
        for name in inspect.signature(vars(cls)["__init__"]).parameters
    } - {"name", "learning_rate"}
    found = {n: getattr(method, n) for n in sorted(names) if hasattr(method, n)}
    if isinstance(method, keras.optimizers.Optimizer):
        # The attribute `learning_rate` is the current value of a schedule. The
        # config has the schedule itself.
        rate = keras.optimizers.Optimizer.get_config(method)["learning_rate"]
        if isinstance(rate, float):  # rounded to float32
            rate = float(f"{rate:.6g}")
        found["learning_rate"] = rate
    return found


def _description(value: Any) -> Any:
    """Returns a JSON value for a setting, the same in every process."""
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, DatasetSize):
        return value.given
    if isinstance(value, (list, tuple)):
        return [_description(item) for item in value]
    if isinstance(value, dict):
        return {str(k): _description(item) for k, item in value.items()}
    if hasattr(value, "get_config") and not inspect.isclass(value):
        return [type(value).__name__, _description(_config(value))]
    return getattr(value, "__qualname__", type(value).__name__)


def _config(value: Any) -> Any:
    try:
        return value.get_config()
    except (NotImplementedError, ValueError):
        return None  # without a config, nothing can be compared


def _some(command: Any, names: list[str]) -> Any:
    return ", ".join(f"{name} {command[name]!r}" for name in names)


def check_callbacks(
    directory: str, stateful: Any, others: Any, saved: Any
) -> None:
    """Raises an error unless the callbacks are those of the saved run."""
    theirs = [one["class"] for one in saved]
    ours = [type(c).__name__ for c in (*stateful, *others)]
    if ours != theirs:
        raise ValueError(
            "`fit` must be given the callbacks with which the checkpoint in "
            f"`{directory}` was written, in the same order: {theirs}. Use "
            f"these callbacks or another directory. Received: {ours}"
        )
    for callback, one in zip(stateful, saved, strict=False):
        callback.check_state(one["state"])
