"""Distributions that variational layers learn for one tensor of weights.

`keras_bdl.priors` has the distributions before training, `keras_bdl.posteriors`
the distributions over all weights of a model.
"""

from keras_bdl.distributions.mean_field import MeanField
from keras_bdl.distributions.radial import Radial
from keras_bdl.distributions.stored_prior import StoredPrior
from keras_bdl.distributions.weight_distribution import WeightDistribution

__all__ = ["MeanField", "Radial", "StoredPrior", "WeightDistribution"]
