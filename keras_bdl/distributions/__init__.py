"""Distributions that variational layers learn for one tensor of weights.

`keras_bdl.priors` has the distributions before training, `keras_bdl.posteriors`
the distributions over all weights of a model.
"""

from keras_bdl.distributions._weight_distribution import MeanField
from keras_bdl.distributions._weight_distribution import Radial

__all__ = ["MeanField", "Radial"]
