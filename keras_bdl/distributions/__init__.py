"""The distributions that variational layers learn for their weights.

They belong to one tensor, and a layer trains them. The distribution before the
data is in `keras_bdl.priors`; that of a whole model in `keras_bdl.posteriors`.
"""

from keras_bdl.distributions.mean_field import MeanField
from keras_bdl.distributions.radial import Radial
from keras_bdl.distributions.stored_prior import StoredPrior
from keras_bdl.distributions.weight_distribution import WeightDistribution

__all__ = ["MeanField", "Radial", "StoredPrior", "WeightDistribution"]
