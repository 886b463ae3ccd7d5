"""The weights of a model that get a posterior."""

from collections.abc import Iterable
from typing import Any

import keras

from keras_bdl import _keras
from keras_bdl.posteriors._covered_weights import excluded_variables


def uncertain_variables(
    model: keras.Model,
    *,
    subset: str,
    exclude_from_inference: str | Iterable[str],
) -> list[Any]:
    """Returns the trainable variables that get a posterior.

    Args:
        model: A built Keras model.
        subset: `"all"` or `"last_layer"`.
        exclude_from_inference: Names of layers, of layer classes or of
            variables without a posterior.
    """
    if isinstance(exclude_from_inference, str):
        exclude_from_inference = (exclude_from_inference,)
    excluded = excluded_variables(model, exclude_from_inference)
    variables = [v for v in model.trainable_variables if id(v) not in excluded]
    if not variables:
        raise ValueError(
            "`model` must have a trainable weight outside of "
            "`exclude_from_inference`. Set `trainable=True` on a layer, or "
            f"exclude fewer layers. Received: model={model.name!r}, "
            f"exclude_from_inference={exclude_from_inference}"
        )
    if subset == "all":
        return variables
    own = {
        id(v)
        for last in _last_layers(model, variables)
        for v in last.trainable_variables
    }
    return [v for v in variables if id(v) in own]


def _last_layers(model, variables):
    """Returns the last layer with some of the variables of each output."""
    outputs = getattr(model, "outputs", None) or ()
    if len(outputs) < 2:
        return [innermost_layer_of(model, variables[-1])]
    wanted = {id(v) for v in variables}
    found = []
    for output in outputs:
        layers = _keras.operations_before(output)
        with_weights = (
            layer
            for layer in layers
            if any(
                id(v) in wanted
                for v in getattr(layer, "trainable_variables", ())
            )
        )
        last = next(with_weights, None)
        if last is None:
            raise ValueError(
                '`subset="last_layer"` needs a layer with weights before each '
                'output. Pass `subset="all"`. '
                f"Received: model={model.name!r}, output={output.name!r}"
            )
        own = [v for v in last.trainable_variables if id(v) in wanted]
        found.append(innermost_layer_of(model, own[-1]))
    return found


def innermost_layer_of(model: keras.Model, variable: Any) -> keras.Layer:
    """Returns the innermost layer that owns a variable.

    Args:
        model: A built Keras model.
        variable: One of its trainable variables.
    """
    owners = [
        layer
        for layer in _keras.inner_layers(model)
        if any(v is variable for v in layer.trainable_variables)
    ]
    return min(owners, key=lambda layer: len(layer.trainable_variables))
