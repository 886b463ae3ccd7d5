"""Which layer takes the place of which in a conversion."""

import inspect

import keras

from keras_bdl import layers
from keras_bdl.layers.mc_dropout import MCDropout
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


# By kind, what each layer becomes. A subclass may compute something else, and
# has no rule.
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

# Their weights stay numbers: those of one scale or offset a feature, those
# that are statistics, and the noise of the data.
DETERMINISTIC = (
    keras.layers.BatchNormalization,
    keras.layers.GroupNormalization,
    keras.layers.LayerNormalization,
    keras.layers.Normalization,
    keras.layers.PReLU,
    keras.layers.RMSNormalization,
    LearnedStddev,
)

# These use the layers inside in ways of their own, such as many times in a
# loop, and not by calling them as they are.
SEALED = (
    keras.layers.Bidirectional,
    keras.layers.RNN,
    keras.layers.StackedRNNCells,
    keras.layers.Wrapper,
)


def options_of(kind: str):
    """Returns the arguments that a kind adds to those of a layer of Keras."""
    if kind == "mc_dropout":
        return {"rate", "seed"}
    base = {
        "mean_field": layers.MeanFieldLayer,
        "radial": layers.RadialLayer,
    }[kind]
    return {
        parameter.name
        for cls in base.__mro__
        if issubclass(cls, layers.Variational)
        for parameter in inspect.signature(cls).parameters.values()
        if parameter.kind is parameter.KEYWORD_ONLY
    }
