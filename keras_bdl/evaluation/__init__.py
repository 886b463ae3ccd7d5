"""Scores of a finished prediction: calibration, ranking, unknown data.

The functions take a `Prediction`, the result of `keras_bdl.predict`, or arrays.
The metrics in `keras_bdl.metrics` compute similar numbers while `fit` runs.
"""

from keras_bdl.evaluation._calibration import calibration_bins
from keras_bdl.evaluation._feature_density import FeatureDensity
from keras_bdl.evaluation._ood import energy_score
from keras_bdl.evaluation._ood import max_logit_score
from keras_bdl.evaluation._ood import ood_detection
from keras_bdl.evaluation._segmentation import SegmentationScores
from keras_bdl.evaluation._table import table

__all__ = [
    "FeatureDensity",
    "SegmentationScores",
    "calibration_bins",
    "energy_score",
    "max_logit_score",
    "ood_detection",
    "table",
]
