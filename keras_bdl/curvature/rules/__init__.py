from keras_bdl.curvature.rules.conv import ConvRule
from keras_bdl.curvature.rules.dense import DenseRule
from keras_bdl.curvature.rules.whole_layer import WholeLayerRule

__all__ = ["ConvRule", "DenseRule", "WholeLayerRule"]
