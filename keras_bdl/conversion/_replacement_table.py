"""Tables of the Keras layers that each kind of conversion replaces."""

import inspect

import keras

from keras_bdl import layers
from keras_bdl.layers._mc_dropout import MCDropout
from keras_bdl.layers._mean_field import MeanFieldLayer
from keras_bdl.layers._radial import RadialLayer
from keras_bdl.likelihoods import LearnedStddev

_ALIKE = (
    "Conv1D",
    "Conv2D",
    "Conv2DTranspose",
    "Conv3D",
    "Dense",
    "DepthwiseConv2D",
    "EinsumDense",
)


def _variational(prefix, names):
    return {
        getattr(keras.layers, name): getattr(layers, prefix + name)
        for name in names
    }


# For each kind, a dict from the class of a layer to the class that replaces it.
# Subclasses have no rule, because a subclass may compute something else.
RULES = {
    "mean_field": _variational("MeanField", (*_ALIKE, "Embedding")),
    "radial": _variational("Radial", (*_ALIKE, "Embedding")),
    "mc_dropout": dict.fromkeys(
        [
            *(getattr(keras.layers, name) for name in _ALIKE),
            keras.layers.Conv1DTranspose,
            keras.layers.Conv3DTranspose,
            keras.layers.DepthwiseConv1D,
            keras.layers.SeparableConv1D,
            keras.layers.SeparableConv2D,
            layers.WeightNormConv2D,
            layers.WeightNormDense,
        ],
        MCDropout,
    ),
}

# The weights of these layers get no distribution: scales and offsets per
# feature, statistics, and the noise of the data.
DETERMINISTIC = (
    keras.layers.BatchNormalization,
    keras.layers.GroupNormalization,
    keras.layers.LayerNormalization,
    keras.layers.Normalization,
    keras.layers.PReLU,
    keras.layers.RMSNormalization,
    LearnedStddev,
)


def options_of(kind: str):
    """Returns the names of the arguments that a Keras layer does not have."""
    if kind == "mc_dropout":
        return {"rate", "seed"}
    base = {
        "mean_field": MeanFieldLayer,
        "radial": RadialLayer,
    }[kind]
    return {
        parameter.name
        for parameter in inspect.signature(base).parameters.values()
        if parameter.kind is parameter.KEYWORD_ONLY
    }
