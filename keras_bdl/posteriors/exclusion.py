"""Which weights of a model have no posterior."""


def excluded_variables(model, names):
    """Returns the trainable variables that have neither prior nor noise.

    Args:
        model: A built Keras model.
        names: Names of layers, of classes of layers (which stand for all
            layers inside, too), or of variables, such as `"bias"`.

    Returns:
        A set of their `id`.
    """
    found, known = set(), {"BatchNormalization", "LearnedStddev"}
    for layer in model._flatten_layers():
        own = {layer.name, *(c.__name__ for c in type(layer).__mro__)}
        known |= own
        if own.intersection(names):
            found.update(id(v) for v in layer.trainable_variables)
    for variable in model.trainable_variables:
        known.add(variable.name)
        if variable.name in names:
            found.add(id(variable))
    unknown = sorted(set(names) - known)
    if unknown:
        raise ValueError(
            "`exclude_from_inference` must name layers, classes of layers or "
            f"variables of the model. Received: {unknown}, which are none of "
            f"model={model.name!r}"
        )
    return found
