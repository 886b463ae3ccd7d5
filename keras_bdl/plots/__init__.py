"""Pictures of predictions, reports and chains, with Matplotlib.

Each function takes results of `keras_bdl.predict`, `keras_bdl.evaluation` or
`keras_bdl.diagnostics`.
"""

from keras_bdl.plots._chains import autocorrelation
from keras_bdl.plots._chains import trace
from keras_bdl.plots._classifiers import entropy_histograms
from keras_bdl.plots._classifiers import referral_curve
from keras_bdl.plots._classifiers import reliability_diagram
from keras_bdl.plots._comparison import comparison
from keras_bdl.plots._gradient_variance import gradient_variance
from keras_bdl.plots._loss_surface import loss_cross_section
from keras_bdl.plots._loss_surface import loss_plane
from keras_bdl.plots._prediction_sets import prediction_sets
from keras_bdl.plots._regression_bands import regression_bands
from keras_bdl.plots._regression_bands import regression_comparison
from keras_bdl.plots._segmentation_maps import segmentation_maps
from keras_bdl.plots._shift import shift
from keras_bdl.plots._task_accuracies import task_accuracies

__all__ = [
    "autocorrelation",
    "comparison",
    "entropy_histograms",
    "gradient_variance",
    "loss_cross_section",
    "loss_plane",
    "prediction_sets",
    "referral_curve",
    "regression_bands",
    "regression_comparison",
    "reliability_diagram",
    "segmentation_maps",
    "shift",
    "task_accuracies",
    "trace",
]
