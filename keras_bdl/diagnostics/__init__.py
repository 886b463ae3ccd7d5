from keras_bdl.diagnostics.autocorrelation import autocorrelation
from keras_bdl.diagnostics.convergence import convergence
from keras_bdl.diagnostics.convergence_report import ConvergenceReport
from keras_bdl.diagnostics.effective_sample_size import effective_sample_size
from keras_bdl.diagnostics.gradient_variance import gradient_variance
from keras_bdl.diagnostics.gradient_variance_report import (
    GradientVarianceReport,
)
from keras_bdl.diagnostics.potential_scale_reduction import (
    potential_scale_reduction,
)
from keras_bdl.diagnostics.prediction_chains import prediction_chains
from keras_bdl.diagnostics.weight_chains import WeightChains

__all__ = [
    "ConvergenceReport",
    "GradientVarianceReport",
    "WeightChains",
    "autocorrelation",
    "convergence",
    "effective_sample_size",
    "gradient_variance",
    "potential_scale_reduction",
    "prediction_chains",
]
