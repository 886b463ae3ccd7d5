"""Metrics for `compile(metrics=...)`, updated batch by batch.

They judge the mean network or the draws that `evaluate` makes. Reports on a
finished `Prediction` are in `keras_bdl.evaluation`.
"""

from keras_bdl.metrics.brier_score import BrierScore
from keras_bdl.metrics.continuous_ranked_probability_score import (
    ContinuousRankedProbabilityScore,
)
from keras_bdl.metrics.expected_calibration_error import (
    ExpectedCalibrationError,
)
from keras_bdl.metrics.gaussian_log_likelihood import GaussianLogLikelihood
from keras_bdl.metrics.interval_coverage import IntervalCoverage
from keras_bdl.metrics.maximum_calibration_error import MaximumCalibrationError
from keras_bdl.metrics.mean_absolute_error import MeanAbsoluteError
from keras_bdl.metrics.negative_log_likelihood import NegativeLogLikelihood
from keras_bdl.metrics.predictive_entropy import PredictiveEntropy
from keras_bdl.metrics.root_mean_squared_error import RootMeanSquaredError

__all__ = [
    "BrierScore",
    "ContinuousRankedProbabilityScore",
    "ExpectedCalibrationError",
    "GaussianLogLikelihood",
    "IntervalCoverage",
    "MaximumCalibrationError",
    "MeanAbsoluteError",
    "NegativeLogLikelihood",
    "PredictiveEntropy",
    "RootMeanSquaredError",
]
