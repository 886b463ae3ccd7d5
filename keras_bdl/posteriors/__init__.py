"""Posteriors: distributions over all weights of a model.

Every method of this library yields a posterior, and `keras_bdl.predict`
averages over its samples. The distributions of single tensors, which
variational layers learn, are in `keras_bdl.distributions`.
"""

from keras_bdl.distribute.variable_copies import restored
from keras_bdl.posteriors.diagonal_gaussian import Gaussian
from keras_bdl.posteriors.dropout_switch import dropout_is_on
from keras_bdl.posteriors.ensemble import Ensemble
from keras_bdl.posteriors.laplace_gaussian import Laplace
from keras_bdl.posteriors.layerwise import Layerwise
from keras_bdl.posteriors.load import load
from keras_bdl.posteriors.low_rank_gaussian import LowRankGaussian
from keras_bdl.posteriors.matrix_covariance import MatrixCovariance
from keras_bdl.posteriors.matrix_covariance import MatrixCurvature
from keras_bdl.posteriors.matrix_normal import MatrixNormal
from keras_bdl.posteriors.mc_dropout import MCDropout
from keras_bdl.posteriors.mixture import Mixture
from keras_bdl.posteriors.posterior import Posterior
from keras_bdl.posteriors.posterior_of import posterior_of
from keras_bdl.posteriors.structure import Structure
from keras_bdl.protocols import SamplesWeights

__all__ = [
    "Ensemble",
    "Gaussian",
    "Laplace",
    "Layerwise",
    "LowRankGaussian",
    "MCDropout",
    "MatrixCovariance",
    "MatrixCurvature",
    "MatrixNormal",
    "Mixture",
    "Posterior",
    "SamplesWeights",
    "Structure",
    "dropout_is_on",
    "load",
    "posterior_of",
    "restored",
]
