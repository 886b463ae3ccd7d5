from keras_bdl.prediction.classification_prediction import (
    ClassificationPrediction,
)
from keras_bdl.prediction.prediction import Prediction
from keras_bdl.prediction.regression_prediction import RegressionPrediction

__all__ = [
    "ClassificationPrediction",
    "Prediction",
    "RegressionPrediction",
]
