"""Scores of a finished prediction: calibration, ranking, unknown data.

The functions take a `Prediction`, the result of `keras_bdl.predict`, or arrays.
The metrics in `keras_bdl.metrics` compute similar numbers while `fit` runs.
"""

from keras_bdl.evaluation._brier import brier_decomposition
from keras_bdl.evaluation._brier import brier_score
from keras_bdl.evaluation._calibration import calibration_bins
from keras_bdl.evaluation._calibration import classwise_calibration_error
from keras_bdl.evaluation._calibration import expected_calibration_error
from keras_bdl.evaluation._calibration import maximum_calibration_error
from keras_bdl.evaluation._evaluate import evaluate
from keras_bdl.evaluation._feature_density import FeatureDensity
from keras_bdl.evaluation._gaussian_mixture import mixture_crps
from keras_bdl.evaluation._gaussian_mixture import mixture_interval_coverage
from keras_bdl.evaluation._gaussian_mixture import mixture_log_likelihood
from keras_bdl.evaluation._logit_scores import energy_score
from keras_bdl.evaluation._logit_scores import max_logit_score
from keras_bdl.evaluation._ood import entropy_divergence
from keras_bdl.evaluation._ood import ood_detection
from keras_bdl.evaluation._ood import ood_scores
from keras_bdl.evaluation._ranking import auroc
from keras_bdl.evaluation._ranking import average_precision
from keras_bdl.evaluation._ranking import fpr_at_tpr
from keras_bdl.evaluation._referral import referral_accuracy
from keras_bdl.evaluation._referral import referral_auroc
from keras_bdl.evaluation._referral import uncertainty_of
from keras_bdl.evaluation._risk_coverage import aurc
from keras_bdl.evaluation._risk_coverage import excess_aurc
from keras_bdl.evaluation._segmentation_scores import SegmentationScores
from keras_bdl.evaluation._smooth_calibration import smooth_calibration_error
from keras_bdl.evaluation._table import table

__all__ = [
    "FeatureDensity",
    "SegmentationScores",
    "aurc",
    "auroc",
    "average_precision",
    "brier_decomposition",
    "brier_score",
    "calibration_bins",
    "classwise_calibration_error",
    "energy_score",
    "entropy_divergence",
    "evaluate",
    "excess_aurc",
    "expected_calibration_error",
    "fpr_at_tpr",
    "max_logit_score",
    "maximum_calibration_error",
    "mixture_crps",
    "mixture_interval_coverage",
    "mixture_log_likelihood",
    "ood_detection",
    "ood_scores",
    "referral_accuracy",
    "referral_auroc",
    "smooth_calibration_error",
    "table",
    "uncertainty_of",
]
