"""Sets and intervals with a guaranteed coverage, from finished predictions.

A method is fitted to a held-out `Prediction` and its labels, without training.
It then turns other predictions of the same model into sets. Everything but
`ConformalLayer` is NumPy.
"""

from keras_bdl.conformal._adaptive_conformal import AdaptiveConformal
from keras_bdl.conformal._class_scores import APS
from keras_bdl.conformal._class_scores import LAC
from keras_bdl.conformal._class_scores import RAPS
from keras_bdl.conformal._conformal import load
from keras_bdl.conformal._conformal_layer import ConformalLayer
from keras_bdl.conformal._conformalized_quantiles import ConformalizedQuantiles
from keras_bdl.conformal._intervals import NormalizedResiduals
from keras_bdl.conformal._risk_control import RiskControl

__all__ = [
    "APS",
    "AdaptiveConformal",
    "ConformalLayer",
    "ConformalizedQuantiles",
    "LAC",
    "NormalizedResiduals",
    "RAPS",
    "RiskControl",
    "load",
]
