"""Matching an argument to the outputs of a model."""

import keras


def per_output(argument, value, outputs, names=None):
    """Returns what `value` says about each output, outputs flattened.

    Args:
        argument: Name of the argument, for the error message.
        value: One value for all outputs, or values in the structure of the
            outputs: a dictionary (of the outputs' keys or names; what is
            missing is `None`), or a list or tuple in their order.
        outputs: The nested outputs.
        names: The names of the flattened outputs. Defaults to `None`.
    """
    paths = [path for path, _ in keras.tree.flatten_with_path(outputs)]
    if not isinstance(value, (dict, list, tuple)):
        return [value] * len(paths)
    if isinstance(value, dict) and not isinstance(outputs, dict):
        paths = [(name,) for name in names or ()]
    elif not isinstance(value, dict) and len(value) == len(paths):
        return list(value)
    known = {path[0] for path in paths if path}
    if not isinstance(value, dict) or not set(value) <= known:
        raise ValueError(
            f"`{argument}` must be one value for all outputs, or have one for "
            "each in the structure of the model's outputs "
            f"{keras.tree.map_structure(lambda _: '.', outputs)}"
            f"{f', named {list(names)}' if names else ''}. "
            f"Received: {argument}={value!r}"
        )
    return [_follow(value, path) for path in paths]


def _follow(value, path):
    for key in path:
        if value is None:
            return None
        value = value.get(key) if isinstance(value, dict) else value[key]
    return value
