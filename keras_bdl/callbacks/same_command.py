"""Whether a run goes on by the command that began it."""

from keras_bdl.distribute.workers import numbers_of_workers
from keras_bdl.training.inner_optimizer import inner_optimizer


def command_of(model, params):
    """Returns what a command that goes on must have in common with the first.

    Args:
        model: A model in training.
        params: The parameters that Keras gives to callbacks.
    """
    objective = getattr(model, "objective", None)
    return {
        "optimizer": type(inner_optimizer(model)).__name__,
        "objective": None if objective is None else type(objective).__name__,
        "steps of an epoch": params["steps"],
        "steps_per_execution": int(model.steps_per_execution),
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


def _some(command, names):
    return ", ".join(f"{name} {command[name]!r}" for name in names)
