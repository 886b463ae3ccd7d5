from keras_bdl.diagnostics.autocorrelation import autocorrelation
from keras_bdl.diagnostics.convergence import convergence
from keras_bdl.diagnostics.convergence_report import ConvergenceReport
from keras_bdl.diagnostics.effective_sample_size import effective_sample_size
from keras_bdl.diagnostics.potential_scale_reduction import (
    potential_scale_reduction,
)
from keras_bdl.diagnostics.prediction_chains import prediction_chains
from keras_bdl.diagnostics.weight_chains import WeightChains

__all__ = [
    "ConvergenceReport",
    "WeightChains",
    "autocorrelation",
    "convergence",
    "effective_sample_size",
    "potential_scale_reduction",
    "prediction_chains",
]
