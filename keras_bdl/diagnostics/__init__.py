"""Measurements of chains, of gradients and of the loss around a solution.

Diagnostics judge the inference. `keras_bdl.evaluation` judges the predictions,
and `keras_bdl.plots` draws pictures of both.
"""

from keras_bdl.diagnostics.chains.convergence_report import ConvergenceReport
from keras_bdl.diagnostics.chains.convergence_report import convergence
from keras_bdl.diagnostics.chains.prediction_chains import prediction_chains
from keras_bdl.diagnostics.chains.r_hat_and_ess import autocorrelation
from keras_bdl.diagnostics.chains.r_hat_and_ess import effective_sample_size
from keras_bdl.diagnostics.chains.r_hat_and_ess import potential_scale_reduction
from keras_bdl.diagnostics.chains.weight_chains import WeightChains
from keras_bdl.diagnostics.gradients.gradient_noise import GradientNoiseReport
from keras_bdl.diagnostics.gradients.gradient_noise import gradient_noise
from keras_bdl.diagnostics.gradients.gradient_variance import (
    GradientVarianceReport,
)
from keras_bdl.diagnostics.gradients.gradient_variance import gradient_variance
from keras_bdl.diagnostics.loss_surface.hessian_eigenvalues import (
    HessianEigenvaluesReport,
)
from keras_bdl.diagnostics.loss_surface.hessian_eigenvalues import (
    hessian_eigenvalues,
)
from keras_bdl.diagnostics.loss_surface.loss_cross_section import (
    LossCrossSectionReport,
)
from keras_bdl.diagnostics.loss_surface.loss_cross_section import (
    loss_cross_section,
)
from keras_bdl.diagnostics.loss_surface.loss_plane import LossPlaneReport
from keras_bdl.diagnostics.loss_surface.loss_plane import loss_plane
from keras_bdl.diagnostics.loss_surface.posterior_eigenvectors import (
    PosteriorEigenvectorsReport,
)
from keras_bdl.diagnostics.loss_surface.posterior_eigenvectors import (
    posterior_eigenvectors,
)
from keras_bdl.diagnostics.loss_surface.projected_covariance import (
    project_weights,
)
from keras_bdl.diagnostics.loss_surface.projected_covariance import (
    projected_covariance,
)

__all__ = [
    "ConvergenceReport",
    "GradientNoiseReport",
    "GradientVarianceReport",
    "HessianEigenvaluesReport",
    "LossCrossSectionReport",
    "LossPlaneReport",
    "PosteriorEigenvectorsReport",
    "WeightChains",
    "autocorrelation",
    "convergence",
    "effective_sample_size",
    "gradient_noise",
    "gradient_variance",
    "hessian_eigenvalues",
    "loss_cross_section",
    "loss_plane",
    "posterior_eigenvectors",
    "potential_scale_reduction",
    "prediction_chains",
    "project_weights",
    "projected_covariance",
]
