"""Distributions of the weights before training.

Samplers, objectives and variational layers take a prior, and any layer takes it
as a regularizer. `keras_bdl.posteriors` has the distributions after training.
"""

from keras_bdl.priors.group_laplace import GroupLaplace
from keras_bdl.priors.he_normal import HeNormal
from keras_bdl.priors.laplace import Laplace
from keras_bdl.priors.normal import Normal
from keras_bdl.priors.prior import Prior
from keras_bdl.priors.scale_mixture import ScaleMixture
from keras_bdl.priors.symmetric_gamma import SymmetricGamma
from keras_bdl.priors.tfp_distribution import TFPDistribution
from keras_bdl.priors.tfp_distribution import get
from keras_bdl.priors.unit_direction import UnitDirection

__all__ = [
    "GroupLaplace",
    "HeNormal",
    "Laplace",
    "Normal",
    "Prior",
    "ScaleMixture",
    "SymmetricGamma",
    "TFPDistribution",
    "UnitDirection",
    "get",
]
