"""Bases and interfaces for methods, layers, priors, pictures of your own.

All other public folders hold what you need to use the methods of the library.
"""

from keras_bdl._data._dataset_size import DatasetSize
from keras_bdl._protocols import DrawsFunctions
from keras_bdl._protocols import KnowsModel
from keras_bdl._protocols import OwnsPosterior
from keras_bdl._protocols import OwnsTrainStep
from keras_bdl._protocols import OwnsVariables
from keras_bdl._protocols import SamplesWeights
from keras_bdl._protocols import TargetsPosterior
from keras_bdl._saving._storage_path import StoragePath
from keras_bdl.applications._residual_network import Architecture
from keras_bdl.callbacks._stateful_callback import StatefulCallback
from keras_bdl.conformal._conformal import Conformal
from keras_bdl.conversion._adapter import AdaptedLayer
from keras_bdl.curvature._batch_curvature import CurvatureStep
from keras_bdl.curvature._batch_curvature import curvature_step
from keras_bdl.curvature._rule import Rule
from keras_bdl.curvature._rule import register_rule
from keras_bdl.datasets._dataset_specs import DatasetSpec
from keras_bdl.distribute._replicas import restored
from keras_bdl.distributions._weight_distribution import WeightDistribution
from keras_bdl.layers._mean_field import MeanFieldLayer
from keras_bdl.layers._radial import RadialLayer
from keras_bdl.layers._variational import Variational
from keras_bdl.layers._weight_priors import StoredPrior
from keras_bdl.objectives._hessian_diagonal import HessianDiagonal
from keras_bdl.objectives._objective import Objective
from keras_bdl.plots._canvas import method_styles
from keras_bdl.plots._canvas import open_axes
from keras_bdl.posteriors._gaussian import KroneckerBlock
from keras_bdl.posteriors._mc_dropout import dropout_is_on
from keras_bdl.posteriors._posterior import Posterior
from keras_bdl.priors._prior import Prior

__all__ = [
    "AdaptedLayer",
    "Architecture",
    "Conformal",
    "DatasetSize",
    "DatasetSpec",
    "DrawsFunctions",
    "HessianDiagonal",
    "KnowsModel",
    "KroneckerBlock",
    "MeanFieldLayer",
    "Objective",
    "OwnsPosterior",
    "OwnsTrainStep",
    "OwnsVariables",
    "Posterior",
    "Prior",
    "RadialLayer",
    "Rule",
    "SamplesWeights",
    "StatefulCallback",
    "CurvatureStep",
    "StoragePath",
    "StoredPrior",
    "TargetsPosterior",
    "Variational",
    "WeightDistribution",
    "dropout_is_on",
    "method_styles",
    "open_axes",
    "register_rule",
    "restored",
    "curvature_step",
]
