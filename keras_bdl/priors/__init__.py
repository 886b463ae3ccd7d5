"""Distributions of the weights before training.

Samplers, objectives and variational layers take a prior, and any layer takes it
as a regularizer. `keras_bdl.posteriors` has the distributions after training.
"""

from keras_bdl.priors._independent_weights import HeNormal
from keras_bdl.priors._independent_weights import Laplace
from keras_bdl.priors._independent_weights import Normal
from keras_bdl.priors._independent_weights import ScaleMixture
from keras_bdl.priors._tfp_distribution import TFPDistribution
from keras_bdl.priors._tfp_distribution import get
from keras_bdl.priors._vectors import GroupLaplace
from keras_bdl.priors._vectors import SymmetricGamma
from keras_bdl.priors._vectors import UnitDirection

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
