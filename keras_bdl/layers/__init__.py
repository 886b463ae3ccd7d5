"""Layers with a distribution over their weights, and MC dropout.

`MeanFieldDense`, for example, takes the arguments of `keras.layers.Dense`, and
more. `keras_bdl.convert` replaces ordinary layers with these layers.
"""

from keras_bdl.layers._mc_dropout import MCDropout
from keras_bdl.layers._mean_field import MeanFieldConv1D
from keras_bdl.layers._mean_field import MeanFieldConv2D
from keras_bdl.layers._mean_field import MeanFieldConv2DTranspose
from keras_bdl.layers._mean_field import MeanFieldConv3D
from keras_bdl.layers._mean_field import MeanFieldDense
from keras_bdl.layers._mean_field import MeanFieldDepthwiseConv2D
from keras_bdl.layers._mean_field import MeanFieldEinsumDense
from keras_bdl.layers._mean_field import MeanFieldEmbedding
from keras_bdl.layers._radial import RadialConv1D
from keras_bdl.layers._radial import RadialConv2D
from keras_bdl.layers._radial import RadialConv2DTranspose
from keras_bdl.layers._radial import RadialConv3D
from keras_bdl.layers._radial import RadialDense
from keras_bdl.layers._radial import RadialDepthwiseConv2D
from keras_bdl.layers._radial import RadialEinsumDense
from keras_bdl.layers._radial import RadialEmbedding
from keras_bdl.layers._weight_norm import WeightNormConv2D
from keras_bdl.layers._weight_norm import WeightNormDense

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
    "RadialConv1D",
    "RadialConv2D",
    "RadialConv2DTranspose",
    "RadialConv3D",
    "RadialDense",
    "RadialDepthwiseConv2D",
    "RadialEinsumDense",
    "RadialEmbedding",
    "WeightNormConv2D",
    "WeightNormDense",
]
