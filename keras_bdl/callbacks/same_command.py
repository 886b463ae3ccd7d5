"""Whether a run goes on by the command that began it."""

import inspect
import json
import warnings

import keras

from keras_bdl.data.dataset_size import DatasetSize
from keras_bdl.distribute.workers import numbers_of_workers
from keras_bdl.loss_scaling import inner_optimizer

_LEARNING_RATE = "learning_rate of the optimizer"


def command_of(model, params):
    """Returns what a command that goes on must have in common with the first.

    Args:
        model: A model in training.
        params: The parameters that Keras gives to callbacks.
    """
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


def check_command(directory, saved, ours, step):
    """Raises an error if a run cannot go on from where another one was.

    Args:
        directory: That of the checkpoint.
        saved: What `command_of` returned when the checkpoint was written.
        ours: What it returns now.
        step: How many steps of data would be skipped.
    """
    names = ["optimizer", "objective"]
    if step:
        names.append("steps_per_execution")
        # Not known of all data.
        if None not in (saved["steps of an epoch"], ours["steps of an epoch"]):
            names.append("steps of an epoch")
    differ = [name for name in names if saved[name] != ours[name]]
    if differ:
        raise ValueError(
            "A run must go on with the method that it began with, and within "
            "an epoch with the same batches. Use another directory, or delete "
            f"`{directory}`. Received: {_some(ours, differ)}, where the "
            f"checkpoint has {_some(saved, differ)}"
        )
    _check_settings(directory, saved.get("settings", {}), ours["settings"])


def check_workers(directory, strategy, state):
    """Raises an error where workers have read different files.

    Args:
        directory: That of the checkpoint.
        strategy: The strategy of the model.
        state: What was read, or `None`.
    """
    place = [-1, -1] if state is None else [state["epoch"], state["step"]]
    read = numbers_of_workers(strategy, place)
    if any(other != read[0] for other in read):
        raise ValueError(
            "`directory` must be one that all workers see, such as a "
            "network disk, and be left alone by other trainings. "
            f"Received: directory={directory!r}, in which the workers "
            f"find the epochs and steps {read}, -1 for none"
        )


def _check_settings(directory, saved, ours):
    """Refuses other hyper-parameters, and warns of another learning rate."""
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
            "The learning rate of the checkpoint is used, and not the one "
            "that the optimizer was given now. To change it in the course of "
            "a run, use `keras.callbacks.LearningRateScheduler`; for another "
            f"run, use another directory, or delete `{directory}`. {received}",
            stacklevel=4,
        )
    elif differ:
        raise ValueError(
            "A run must go on with the loss and the hyper-parameters that it "
            "began with. Use another directory, or delete "
            f"`{directory}`. {received}"
        )


def _are_numbers(*settings):
    rates = [json.loads(one[_LEARNING_RATE]) for one in settings]
    return all(isinstance(rate, float) for rate in rates)


def _arguments(method):
    """Returns the constructor arguments of an optimizer or an objective."""
    names = {
        name
        for cls in type(method).__mro__
        if "__init__" in vars(cls)
        for name in inspect.signature(cls.__init__).parameters
    } - {"name", "learning_rate"}
    found = {n: getattr(method, n) for n in sorted(names) if hasattr(method, n)}
    if isinstance(method, keras.optimizers.Optimizer):
        # The attribute of Keras hides a schedule behind its present value.
        rate = keras.optimizers.Optimizer.get_config(method)["learning_rate"]
        if isinstance(rate, float):  # out of float32
            rate = float(f"{rate:.6g}")
        found["learning_rate"] = rate
    return found


def _description(value):
    """Returns what JSON can hold of a setting, the same in each process."""
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


def _config(value):
    try:
        return value.get_config()
    except (NotImplementedError, ValueError):
        return None  # what cannot be written down cannot be compared


def _some(command, names):
    return ", ".join(f"{name} {command[name]!r}" for name in names)
