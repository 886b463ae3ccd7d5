"""Predictions that average over posterior samples.

This folder makes predictions; `keras_bdl.evaluation` scores them.
"""

from keras_bdl.prediction._batch_norm import reestimate_batch_norm
from keras_bdl.prediction._calibration import IsotonicCalibration
from keras_bdl.prediction._calibration import TemperatureScaling
from keras_bdl.prediction._calibration import VectorScaling
from keras_bdl.prediction._options import PredictOptions
from keras_bdl.prediction._predictions import ClassificationPrediction
from keras_bdl.prediction._predictions import RegressionPrediction

__all__ = [
    "ClassificationPrediction",
    "IsotonicCalibration",
    "PredictOptions",
    "RegressionPrediction",
    "TemperatureScaling",
    "VectorScaling",
    "reestimate_batch_norm",
]
