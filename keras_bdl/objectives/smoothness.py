"""Finds activations whose second derivative says nothing."""

import warnings

import keras

_NAMES = (
    "relu",
    "relu6",
    "leaky_relu",
    "hard_sigmoid",
    "hard_tanh",
    "hard_shrink",
    "soft_shrink",
    "sparse_sigmoid",
    "threshold",
)
_LAYERS = (keras.layers.ReLU, keras.layers.LeakyReLU, keras.layers.PReLU)


def warn_of_kinks(model):
    """Warns if a model has piecewise linear activations; says whether it did.

    Args:
        model: A Keras model.
    """
    found = [
        layer.name
        for layer in model._flatten_layers(include_self=False)
        if isinstance(layer, _LAYERS)
        or any(
            _name(getattr(layer, attribute, None)) in _NAMES
            for attribute in ("activation", "recurrent_activation")
        )
    ]
    if found:
        warnings.warn(
            "`TaylorVI` differentiates twice, and the second derivative of a "
            "piecewise linear activation is zero wherever there is one: the "
            "objective does not see how these layers bend. Use a smooth "
            'activation, such as "softplus" or "gelu". '
            f"Received: layers {found}",
            stacklevel=2,
        )
    return bool(found)


def _name(activation):
    return getattr(activation, "__name__", None)
