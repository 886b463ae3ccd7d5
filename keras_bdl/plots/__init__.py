from keras_bdl.plots.comparison import comparison
from keras_bdl.plots.entropy_histograms import entropy_histograms
from keras_bdl.plots.referral_curve import referral_curve
from keras_bdl.plots.regression_bands import regression_bands
from keras_bdl.plots.reliability_diagram import reliability_diagram

__all__ = [
    "comparison",
    "entropy_histograms",
    "referral_curve",
    "regression_bands",
    "reliability_diagram",
]
