"""Bases and interfaces for methods, layers, priors, pictures of your own.

All other public folders hold what you need to use the methods of the library.
"""

from keras_bdl._conversion._adapter import AdaptedLayer
from keras_bdl._data._dataset_size import DatasetSize
from keras_bdl._protocols import DrawsFunctions
from keras_bdl._protocols import KnowsModel
from keras_bdl._protocols import OwnsPosterior
from keras_bdl._protocols import OwnsTrainStep
from keras_bdl._protocols import OwnsVariables
from keras_bdl._protocols import SamplesWeights
from keras_bdl._protocols import TargetsPosterior
from keras_bdl._saving._storage_path import StoragePath
from keras_bdl.applications._residual_network import IMAGENET
from keras_bdl.applications._residual_network import SMALL_IMAGES
from keras_bdl.applications._residual_network import Architecture
from keras_bdl.callbacks._stateful_callback import StatefulCallback
from keras_bdl.conformal._conformal import Conformal
from keras_bdl.curvature._batch_curvature import curvature_step
from keras_bdl.curvature._rule import Rule
from keras_bdl.curvature._rule import register_rule
from keras_bdl.datasets._augmentation import pad_crop
from keras_bdl.datasets._augmentation import square_crop_flip
from keras_bdl.datasets._dataset_specs import SHARED_CLASSES
from keras_bdl.datasets._dataset_specs import DatasetSpec
from keras_bdl.datasets._image_pipeline import ImagePipeline
from keras_bdl.diagnostics._chains import WeightChains
from keras_bdl.diagnostics._gradient_noise import GradientNoiseReport
from keras_bdl.diagnostics._gradient_variance import GradientVarianceReport
from keras_bdl.diagnostics._loss_sections import LossCrossSectionReport
from keras_bdl.diagnostics._loss_sections import LossPlaneReport
from keras_bdl.diagnostics._loss_surface import LossSurfaceOptions
from keras_bdl.diagnostics._posterior_covariance import project_weights
from keras_bdl.diagnostics._r_hat_and_ess import autocorrelation
from keras_bdl.diagnostics._r_hat_and_ess import effective_sample_size
from keras_bdl.diagnostics._r_hat_and_ess import potential_scale_reduction
from keras_bdl.distributions._weight_distribution import WeightDistribution
from keras_bdl.layers._mean_field import MeanFieldLayer
from keras_bdl.layers._radial import RadialLayer
from keras_bdl.layers._variational import Variational
from keras_bdl.layers._weight_priors import StoredPrior
from keras_bdl.objectives._hessian_diagonal import HessianDiagonal
from keras_bdl.objectives._hessian_diagonal import SquaredGradient
from keras_bdl.objectives._objective import Objective
from keras_bdl.optimizers._natural_gradient import NaturalGradientOptions
from keras_bdl.optimizers._sampler import SamplerOptions
from keras_bdl.plots._canvas import method_styles
from keras_bdl.plots._canvas import open_axes
from keras_bdl.posteriors._gaussian import KroneckerBlock
from keras_bdl.posteriors._posterior import Posterior
from keras_bdl.prediction._predictions import Prediction
from keras_bdl.priors._independent_weights import ScaleMixture
from keras_bdl.priors._prior import Prior
from keras_bdl.priors._tfp_distribution import TFPDistribution
from keras_bdl.priors._tfp_distribution import get_prior
from keras_bdl.priors._vectors import GroupLaplace
from keras_bdl.priors._vectors import SymmetricGamma
from keras_bdl.priors._vectors import UnitDirection

__all__ = [
    "GradientNoiseReport",
    "GradientVarianceReport",
    "LossCrossSectionReport",
    "LossPlaneReport",
    "LossSurfaceOptions",
    "WeightChains",
    "autocorrelation",
    "effective_sample_size",
    "potential_scale_reduction",
    "project_weights",
    "GroupLaplace",
    "ScaleMixture",
    "SymmetricGamma",
    "UnitDirection",
    "TFPDistribution",
    "get_prior",
    "SquaredGradient",
    "SamplerOptions",
    "NaturalGradientOptions",
    "ImagePipeline",
    "SHARED_CLASSES",
    "pad_crop",
    "square_crop_flip",
    "IMAGENET",
    "SMALL_IMAGES",
    "Prediction",
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
    "StoragePath",
    "StoredPrior",
    "TargetsPosterior",
    "Variational",
    "WeightDistribution",
    "method_styles",
    "open_axes",
    "register_rule",
    "curvature_step",
]
