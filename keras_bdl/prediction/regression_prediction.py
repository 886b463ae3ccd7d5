"""Prediction of real numbers."""

import numpy as np

from keras_bdl.prediction.prediction import Prediction


class RegressionPrediction(Prediction):
    """Moments of a mixture of the predictive densities of all draws.

    With `m_s` and `v_s` the mean and the noise variance of draw `s`,

        mean = 1/S sum_s m_s                                              (1)
        variance_within = 1/S sum_s v_s            aleatoric part         (2)
        variance_between = 1/S sum_s (m_s - mean)^2    epistemic part     (3)
        variance = (2) + (3)                                              (4)

    Args:
        mean: (1).
        variance_between: (3). Defaults to `None`, zero: a single draw.
        variance_within: (2). Defaults to `None`, zero: the noise of the
            observations is not known, and (4) is that of the function alone.
        num_samples: S. Defaults to `1`.
        y: Targets found in the data. Defaults to `None`.
        samples: Every `m_s`, draws on the first axis. Defaults to `None`.
        sample_variances: Every `v_s`, broadcastable to `samples`. Defaults
            to `None`, zero.
    """

    task = "regression"

    def __init__(
        self,
        mean,
        variance_between=None,
        variance_within=None,
        num_samples: int = 1,
        y=None,
        samples=None,
        sample_variances=None,
    ):
        super().__init__(num_samples, y, samples)
        self.mean = np.asarray(mean)
        zero = np.zeros_like(self.mean)
        self.variance_between = (
            zero if variance_between is None else np.asarray(variance_between)
        )
        self.variance_within = (
            zero if variance_within is None else np.asarray(variance_within)
        )
        self.sample_variances = sample_variances

    def rescaled(self, scale, offset=0.0):
        """Returns the prediction of `offset + scale * target`.

        For a network that was trained on standardised targets, the prediction
        in the units of the data:

        ```python
        model.fit(x, (y - y.mean()) / y.std())
        prediction = keras_bdl.predict(model, x_test)
        prediction = prediction.rescaled(y.std(), y.mean())
        ```

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
            scale**2 * self.variance_between,
            scale**2 * self.variance_within,
            num_samples=self.num_samples,
            y=None if self.y is None else offset + scale * self.y,
            samples=offset + scale * self.samples if self.has_samples else None,
            sample_variances=scale**2 * self.sample_variances
            if known
            else None,
        )

    @property
    def variance(self):
        """(4)."""
        return self.variance_within + self.variance_between

    @property
    def stddev(self):
        """Square root of (4)."""
        return np.sqrt(self.variance)
