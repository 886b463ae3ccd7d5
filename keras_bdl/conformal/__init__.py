"""Sets and intervals with a guaranteed coverage, from finished predictions.

A method is fitted to a held-out `Prediction` and its labels, without training.
It then turns other predictions of the same model into sets. Everything but
`ConformalLayer` is NumPy.
"""

from keras_bdl.conformal.adaptive_conformal import AdaptiveConformal
from keras_bdl.conformal.aps import APS
from keras_bdl.conformal.aps import RAPS
from keras_bdl.conformal.conformal import Conformal
from keras_bdl.conformal.conformal_layer import ConformalLayer
from keras_bdl.conformal.conformalized_quantiles import ConformalizedQuantiles
from keras_bdl.conformal.controlled_sets import ControlledSets
from keras_bdl.conformal.controlled_sets import RiskReport
from keras_bdl.conformal.coverage_report import CoverageReport
from keras_bdl.conformal.lac import LAC
from keras_bdl.conformal.normalized_residuals import NormalizedResiduals
from keras_bdl.conformal.prediction_intervals import PredictionIntervals
from keras_bdl.conformal.prediction_sets import PredictionSets
from keras_bdl.conformal.risk_control import RiskControl
from keras_bdl.conformal.saved_method import load

__all__ = [
    "APS",
    "AdaptiveConformal",
    "Conformal",
    "ConformalLayer",
    "ConformalizedQuantiles",
    "ControlledSets",
    "CoverageReport",
    "LAC",
    "NormalizedResiduals",
    "PredictionIntervals",
    "PredictionSets",
    "RAPS",
    "RiskControl",
    "RiskReport",
    "load",
]
