"""Predictive mean and variance of real targets."""

from typing import Any

import numpy as np

from keras_bdl.aliases import ArrayLike
from keras_bdl.prediction.prediction import Prediction


class RegressionPrediction(Prediction):
    """Predictive mean and variance, averaged over posterior samples.

    `keras_bdl.predict` returns this object for a regression. With `m_s` and
    `v_s` the mean and the noise variance of posterior sample `s`,

        mean = 1/S sum_s m_s                                              (1)
        variance_within = 1/S sum_s v_s            aleatoric part         (2)
        variance_between = 1/S sum_s (m_s - mean)^2    epistemic part     (3)
        variance = (2) + (3)                                              (4)

    Args:
        mean: (1).
        variance_between: (3). Defaults to `None`: zero, as for one sample.
        variance_within: (2). Defaults to `None`: zero. The noise of the
            observations is then unknown, and (4) equals (3).
        sample_variances: Every `v_s`, broadcastable to `samples`. Defaults
            to `None`, zero.
        samples: Every `m_s`, samples on the first axis. Defaults to `None`.

    Example:

    ```python
    regressor = keras_bdl.Sequential([keras_bdl.layers.MeanFieldDense(1)])
    regressor.compile("adam", keras_bdl.likelihoods.Gaussian(noise_stddev=0.1))
    prediction = keras_bdl.predict(regressor, x_test, samples=3)
    prediction.mean, prediction.stddev
    ```
    """

    task = "regression"

    def __init__(
        self,
        mean: ArrayLike,
        *,
        variance_between: ArrayLike | None = None,
        variance_within: ArrayLike | None = None,
        sample_variances: ArrayLike | None = None,
        **kwargs: Any,
    ):
        self.mean = np.asarray(mean)
        super().__init__(**kwargs)
        zero = np.zeros_like(self.mean)
        self.variance_between = (
            zero if variance_between is None else np.asarray(variance_between)
        )
        self.variance_within = (
            zero if variance_within is None else np.asarray(variance_within)
        )
        self.sample_variances = sample_variances

    def rescaled(
        self, scale: ArrayLike, offset: ArrayLike = 0.0
    ) -> "RegressionPrediction":
        """Returns the prediction of `offset + scale * target`.

        Use this method after training on the standardised targets
        `(y - y.mean()) / y.std()`: `prediction.rescaled(y.std(), y.mean())`
        is in the units of the data.

        Args:
            scale: A positive number, or one for each target.
            offset: A number, or one for each target. Defaults to `0.0`.
        """
        scale = np.asarray(scale, "float64")
        offset = np.asarray(offset, "float64")
        if not (np.all(scale > 0) and np.all(np.isfinite(scale))):
            raise ValueError(
                "`scale` must be positive and finite, such as the standard "
                f"deviation of the targets. Received: scale={scale}"
            )
        known = self.sample_variances is not None
        return RegressionPrediction(
            offset + scale * self.mean,
            variance_between=scale**2 * self.variance_between,
            variance_within=scale**2 * self.variance_within,
            num_samples=self.num_samples,
            y=None if self.y is None else offset + scale * self.y,
            samples=offset + scale * self.samples if self.has_samples else None,
            sample_variances=scale**2 * self.sample_variances
            if known
            else None,
            standard_error=scale * self.standard_error,
            mask=self.mask,
        )

    @property
    def variance(self) -> np.ndarray:
        """Predictive variance, (4)."""
        return self.variance_within + self.variance_between

    @property
    def stddev(self) -> np.ndarray:
        """Square root of (4)."""
        return np.sqrt(self.variance)
