"""Rules for per-example gradients, by type of layer.

`keras_bdl.curvature` finds the rule of a layer and adds up the results of all
calls of the layer.
"""

from keras_bdl.curvature._rules._conv import ConvRule
from keras_bdl.curvature._rules._conv import ConvTransposeRule
from keras_bdl.curvature._rules._conv import DepthwiseConvRule
from keras_bdl.curvature._rules._conv import SeparableConvRule
from keras_bdl.curvature._rules._dense import DenseRule
from keras_bdl.curvature._rules._einsum_dense import EinsumDenseRule
from keras_bdl.curvature._rules._embedding import EmbeddingRule
from keras_bdl.curvature._rules._embedding import ReversibleEmbeddingRule
from keras_bdl.curvature._rules._low_rank import LowRankConvRule
from keras_bdl.curvature._rules._low_rank import LowRankDenseRule
from keras_bdl.curvature._rules._low_rank import LowRankEinsumDenseRule
from keras_bdl.curvature._rules._low_rank import LowRankEmbeddingRule
from keras_bdl.curvature._rules._normalization import BatchNormalizationRule
from keras_bdl.curvature._rules._normalization import NormalizationRule
from keras_bdl.curvature._rules._normalization import PReLURule
from keras_bdl.curvature._rules._whole_layer import WholeLayerRule

__all__ = [
    "BatchNormalizationRule",
    "ConvRule",
    "ConvTransposeRule",
    "DenseRule",
    "DepthwiseConvRule",
    "EinsumDenseRule",
    "EmbeddingRule",
    "LowRankConvRule",
    "LowRankDenseRule",
    "LowRankEinsumDenseRule",
    "LowRankEmbeddingRule",
    "NormalizationRule",
    "PReLURule",
    "ReversibleEmbeddingRule",
    "SeparableConvRule",
    "WholeLayerRule",
]
