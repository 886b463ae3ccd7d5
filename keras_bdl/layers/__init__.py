"""Layers with a distribution over their weights, and MC dropout.

They have the arguments of their Keras namesakes. `keras_bdl.convert` puts them
in the place of ordinary layers.
"""

import keras_bdl.layers.weight_norm_rule  # noqa: F401 (registers them)
from keras_bdl.layers.mc_dropout import MCDropout
from keras_bdl.layers.mean_field_conv1d import MeanFieldConv1D
from keras_bdl.layers.mean_field_conv2d import MeanFieldConv2D
from keras_bdl.layers.mean_field_conv2d_transpose import (
    MeanFieldConv2DTranspose,
)
from keras_bdl.layers.mean_field_conv3d import MeanFieldConv3D
from keras_bdl.layers.mean_field_dense import MeanFieldDense
from keras_bdl.layers.mean_field_depthwise_conv2d import (
    MeanFieldDepthwiseConv2D,
)
from keras_bdl.layers.mean_field_einsum_dense import MeanFieldEinsumDense
from keras_bdl.layers.mean_field_embedding import MeanFieldEmbedding
from keras_bdl.layers.mean_field_layer import MeanFieldLayer
from keras_bdl.layers.radial_conv1d import RadialConv1D
from keras_bdl.layers.radial_conv2d import RadialConv2D
from keras_bdl.layers.radial_conv2d_transpose import RadialConv2DTranspose
from keras_bdl.layers.radial_conv3d import RadialConv3D
from keras_bdl.layers.radial_dense import RadialDense
from keras_bdl.layers.radial_depthwise_conv2d import RadialDepthwiseConv2D
from keras_bdl.layers.radial_einsum_dense import RadialEinsumDense
from keras_bdl.layers.radial_embedding import RadialEmbedding
from keras_bdl.layers.radial_layer import RadialLayer
from keras_bdl.layers.variational import Variational
from keras_bdl.layers.weight_norm_conv2d import WeightNormConv2D
from keras_bdl.layers.weight_norm_dense import WeightNormDense

__all__ = [
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
