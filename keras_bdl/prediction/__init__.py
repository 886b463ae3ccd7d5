"""Predictions that average over posterior samples.

This folder makes predictions; `keras_bdl.evaluation` scores them.
"""

from keras_bdl.prediction._classification_prediction import (
    ClassificationPrediction,
)
from keras_bdl.prediction._isotonic_calibration import IsotonicCalibration
from keras_bdl.prediction._posterior_predictive import PosteriorPredictive
from keras_bdl.prediction._predict import predict
from keras_bdl.prediction._prediction import Prediction
from keras_bdl.prediction._reestimate_batch_norm import reestimate_batch_norm
from keras_bdl.prediction._regression_prediction import RegressionPrediction
from keras_bdl.prediction._temperature_scaling import TemperatureScaling
from keras_bdl.prediction._vector_scaling import VectorScaling

__all__ = [
    "ClassificationPrediction",
    "IsotonicCalibration",
    "PosteriorPredictive",
    "Prediction",
    "RegressionPrediction",
    "TemperatureScaling",
    "VectorScaling",
    "predict",
    "reestimate_batch_norm",
]
