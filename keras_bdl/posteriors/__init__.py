"""Posteriors: distributions over all weights of a model.

Every method of this library yields a posterior, and `keras_bdl.predict`
averages over its samples. The distributions of single tensors, which
variational layers learn, are in `keras_bdl.distributions`.
"""

from keras_bdl.posteriors._ensemble import Ensemble
from keras_bdl.posteriors._gaussian import Gaussian
from keras_bdl.posteriors._held_posterior import Layerwise
from keras_bdl.posteriors._low_rank_gaussian import LowRankGaussian
from keras_bdl.posteriors._matrix_normal import Laplace
from keras_bdl.posteriors._matrix_normal import MatrixNormal
from keras_bdl.posteriors._mc_dropout import MCDropout
from keras_bdl.posteriors._mixture import Mixture
from keras_bdl.posteriors._posterior import load

__all__ = [
    "Ensemble",
    "Gaussian",
    "Laplace",
    "Layerwise",
    "LowRankGaussian",
    "MCDropout",
    "MatrixNormal",
    "Mixture",
    "load",
]
