"""Intervals as wide as the predictive deviation."""

import numpy as np

from keras_bdl._arguments import check_bool
from keras_bdl.conformal._interval_predictor import Core
from keras_bdl.conformal._interval_predictor import IntervalPredictor
from keras_bdl.prediction import RegressionPrediction


class NormalizedResiduals(IntervalPredictor):
    """Symmetric intervals in units of the predictive standard deviation.

    Use this method for the intervals of a regression. With m the predictive
    mean and s the predictive standard deviation,

        score of y = |y - m| / s                                          (1)
        interval = [m - s * cutoff, m + s * cutoff]                       (2)

    The coverage has the guarantee of `keras_bdl.extend.Conformal`.

    Args:
        normalized: Whether to divide by s. Otherwise all intervals have the
            same width. Defaults to `True`.

    Example:

    ```python
    p = keras_bdl.prediction.RegressionPrediction(
        np.zeros(100), variance_within=np.ones(100)
    )
    targets = np.random.default_rng(0).normal(size=100)
    conformal = keras_bdl.conformal.NormalizedResiduals().fit(p, targets)
    conformal(p).upper
    ```

    Reference:
        - [Lei et al., 2018](https://arxiv.org/abs/1604.04173), section 5.2
    """

    def __init__(self, *, normalized: bool = True, **kwargs):
        super().__init__(**kwargs)
        self.normalized = check_bool("normalized", normalized)

    def core(self, prediction: RegressionPrediction) -> Core:
        """Returns the mean twice, and the standard deviation."""
        mean = np.asarray(prediction.mean, "float64")
        scale = np.ones_like(mean)
        if self.normalized:
            variance = np.asarray(prediction.known_variance, "float64")
            scale = np.sqrt(np.broadcast_to(variance, mean.shape))
            if prediction.mask is not None:
                # The spread in padding does not count, and may be 0.
                scale = np.where(prediction.mask | (scale > 0), scale, 1.0)
            if not scale.min() > 0 and not np.isnan(scale).any():
                raise ValueError(
                    "`prediction.stddev` must be positive. Compile the model "
                    "with `keras_bdl.likelihoods.Gaussian`, average several "
                    "samples, or use `normalized=False`. Received: a smallest "
                    f"standard deviation of {scale.min():g}"
                )
        return Core(mean, mean, scale)
