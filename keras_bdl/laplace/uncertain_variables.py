"""Which weights of a trained model are uncertain."""

from keras_bdl.posteriors.exclusion import excluded_variables


def uncertain_variables(model, subset: str, exclude_from_inference):
    """Returns the trainable variables that have a posterior.

    Args:
        model: A built Keras model.
        subset: `"all"`, or `"last_layer"`.
        exclude_from_inference: Names of layers, classes of layers or
            variables that have none.
    """
    if isinstance(exclude_from_inference, str):
        exclude_from_inference = (exclude_from_inference,)
    excluded = excluded_variables(model, exclude_from_inference)
    variables = [v for v in model.trainable_variables if id(v) not in excluded]
    if not variables:
        raise ValueError(
            "`model` must have trainable weights that are not excluded from "
            f"inference. Received: model={model.name!r}, "
            f"exclude_from_inference={exclude_from_inference}"
        )
    if subset == "all":
        return variables
    last = _innermost_layer_of(model, variables[-1])
    own = {id(v) for v in last.trainable_variables}
    return [v for v in variables if id(v) in own]


def _innermost_layer_of(model, variable):
    """Returns the layer that owns a variable, and not one around it."""
    owners = [
        layer
        for layer in model._flatten_layers(include_self=False)
        if any(v is variable for v in layer.trainable_variables)
    ]
    return min(owners, key=lambda layer: len(layer.trainable_variables))
