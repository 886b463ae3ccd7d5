"""Measurements of chains, of gradients and of the loss around a solution.

Diagnostics judge the inference. `keras_bdl.evaluation` judges the predictions,
and `keras_bdl.plots` draws pictures of both.
"""

from keras_bdl.diagnostics._chains import WeightChains
from keras_bdl.diagnostics._chains import prediction_chains
from keras_bdl.diagnostics._convergence import convergence
from keras_bdl.diagnostics._gradient_noise import GradientNoiseReport
from keras_bdl.diagnostics._gradient_noise import gradient_noise
from keras_bdl.diagnostics._gradient_variance import GradientVarianceReport
from keras_bdl.diagnostics._gradient_variance import gradient_variance
from keras_bdl.diagnostics._hessian_eigenvalues import hessian_eigenvalues
from keras_bdl.diagnostics._loss_sections import LossCrossSectionReport
from keras_bdl.diagnostics._loss_sections import LossPlaneReport
from keras_bdl.diagnostics._loss_sections import loss_cross_section
from keras_bdl.diagnostics._loss_sections import loss_plane
from keras_bdl.diagnostics._loss_surface import LossSurfaceOptions
from keras_bdl.diagnostics._posterior_covariance import posterior_eigenvectors
from keras_bdl.diagnostics._posterior_covariance import project_weights
from keras_bdl.diagnostics._posterior_covariance import projected_covariance
from keras_bdl.diagnostics._r_hat_and_ess import autocorrelation
from keras_bdl.diagnostics._r_hat_and_ess import effective_sample_size
from keras_bdl.diagnostics._r_hat_and_ess import potential_scale_reduction

__all__ = [
    "GradientNoiseReport",
    "GradientVarianceReport",
    "LossCrossSectionReport",
    "LossPlaneReport",
    "LossSurfaceOptions",
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
