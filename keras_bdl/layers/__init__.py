from keras_bdl.layers.weight_norm_conv2d import WeightNormConv2D
from keras_bdl.layers.weight_norm_dense import WeightNormDense

__all__ = ["WeightNormConv2D", "WeightNormDense"]
