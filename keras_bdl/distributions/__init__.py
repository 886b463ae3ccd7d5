from keras_bdl.distributions.mean_field import MeanField
from keras_bdl.distributions.radial import Radial
from keras_bdl.distributions.stored_prior import StoredPrior
from keras_bdl.distributions.weight_distribution import WeightDistribution

__all__ = ["MeanField", "Radial", "StoredPrior", "WeightDistribution"]
