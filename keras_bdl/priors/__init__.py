"""Distributions of the weights before training.

Samplers, objectives and variational layers take a prior, and any layer takes it
as a regularizer. `keras_bdl.posteriors` has the distributions after training.
"""

from keras_bdl.priors._group_laplace import GroupLaplace
from keras_bdl.priors._he_normal import HeNormal
from keras_bdl.priors._laplace import Laplace
from keras_bdl.priors._normal import Normal
from keras_bdl.priors._scale_mixture import ScaleMixture
from keras_bdl.priors._symmetric_gamma import SymmetricGamma
from keras_bdl.priors._tfp_distribution import TFPDistribution
from keras_bdl.priors._tfp_distribution import get
from keras_bdl.priors._unit_direction import UnitDirection

__all__ = [
    "GroupLaplace",
    "HeNormal",
    "Laplace",
    "Normal",
    "ScaleMixture",
    "SymmetricGamma",
    "TFPDistribution",
    "UnitDirection",
    "get",
]
