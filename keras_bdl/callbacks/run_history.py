"""The history of a run, as it is saved and restored."""


def get_history(model, epoch, logs):
    """Returns the history so far, with an epoch that Keras adds only later.

    Args:
        model: A model in training.
        epoch: The epoch that has ended.
        logs: Its logs, or `None`.
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


def set_history(model, saved):
    """Puts a history back.

    Args:
        model: A model in training.
        saved: What `get_history` returned.
    """
    history = getattr(model, "history", None)
    if history is not None:
        history.epoch = list(saved["epoch"])
        history.history = {k: list(v) for k, v in saved["history"].items()}
