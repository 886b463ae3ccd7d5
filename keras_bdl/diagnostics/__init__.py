"""Measurements of chains, of gradients and of the loss around a solution.

Diagnostics judge the inference. `keras_bdl.evaluation` judges the predictions,
and `keras_bdl.plots` draws pictures of both.
"""

from keras_bdl.diagnostics._chains import prediction_chains
from keras_bdl.diagnostics._convergence import convergence
from keras_bdl.diagnostics._gradient_noise import gradient_noise
from keras_bdl.diagnostics._gradient_variance import gradient_variance
from keras_bdl.diagnostics._hessian_eigenvalues import hessian_eigenvalues
from keras_bdl.diagnostics._loss_sections import loss_cross_section
from keras_bdl.diagnostics._loss_sections import loss_plane
from keras_bdl.diagnostics._posterior_covariance import posterior_eigenvectors
from keras_bdl.diagnostics._posterior_covariance import projected_covariance

__all__ = [
    "convergence",
    "gradient_noise",
    "gradient_variance",
    "hessian_eigenvalues",
    "loss_cross_section",
    "loss_plane",
    "posterior_eigenvectors",
    "prediction_chains",
    "projected_covariance",
]
