"""Layers with a distribution over their weights, and MC dropout.

`MeanFieldDense`, for example, takes the arguments of `keras.layers.Dense`, and
more. `keras_bdl.convert` replaces ordinary layers with these layers.
"""

import keras_bdl.layers.weight_norm_rule  # noqa: F401 (registers the rules)
from keras_bdl.layers.adapted_layer import AdaptedLayer
from keras_bdl.layers.mc_dropout import MCDropout
from keras_bdl.layers.mean_field import MeanFieldConv1D
from keras_bdl.layers.mean_field import MeanFieldConv2D
from keras_bdl.layers.mean_field import MeanFieldConv2DTranspose
from keras_bdl.layers.mean_field import MeanFieldConv3D
from keras_bdl.layers.mean_field import MeanFieldDense
from keras_bdl.layers.mean_field import MeanFieldDepthwiseConv2D
from keras_bdl.layers.mean_field import MeanFieldEinsumDense
from keras_bdl.layers.mean_field import MeanFieldEmbedding
from keras_bdl.layers.mean_field import MeanFieldLayer
from keras_bdl.layers.radial import RadialConv1D
from keras_bdl.layers.radial import RadialConv2D
from keras_bdl.layers.radial import RadialConv2DTranspose
from keras_bdl.layers.radial import RadialConv3D
from keras_bdl.layers.radial import RadialDense
from keras_bdl.layers.radial import RadialDepthwiseConv2D
from keras_bdl.layers.radial import RadialEinsumDense
from keras_bdl.layers.radial import RadialEmbedding
from keras_bdl.layers.radial import RadialLayer
from keras_bdl.layers.variational import Variational
from keras_bdl.layers.weight_norm import WeightNormConv2D
from keras_bdl.layers.weight_norm import WeightNormDense

__all__ = [
    "AdaptedLayer",
    "MCDropout",
    "MeanFieldConv1D",
    "MeanFieldConv2D",
    "MeanFieldConv2DTranspose",
    "MeanFieldConv3D",
    "MeanFieldDense",
    "MeanFieldDepthwiseConv2D",
    "MeanFieldEinsumDense",
    "MeanFieldEmbedding",
    "MeanFieldLayer",
    "RadialConv1D",
    "RadialConv2D",
    "RadialConv2DTranspose",
    "RadialConv3D",
    "RadialDense",
    "RadialDepthwiseConv2D",
    "RadialEinsumDense",
    "RadialEmbedding",
    "RadialLayer",
    "Variational",
    "WeightNormConv2D",
    "WeightNormDense",
]
