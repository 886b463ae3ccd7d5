"""Metrics for `compile(metrics=...)`, updated batch by batch.

The metrics score the outputs that a model returns in `fit` and `evaluate`.
Functions for a finished `Prediction` are in `keras_bdl.evaluation`.
"""

from keras_bdl.metrics._calibration_errors import ExpectedCalibrationError
from keras_bdl.metrics._calibration_errors import MaximumCalibrationError
from keras_bdl.metrics._classification import BrierScore
from keras_bdl.metrics._classification import NegativeLogLikelihood
from keras_bdl.metrics._classification import PredictiveEntropy
from keras_bdl.metrics._gaussian import ContinuousRankedProbabilityScore
from keras_bdl.metrics._gaussian import GaussianLogLikelihood
from keras_bdl.metrics._gaussian import IntervalCoverage
from keras_bdl.metrics._gaussian import MeanAbsoluteError
from keras_bdl.metrics._gaussian import RootMeanSquaredError

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
