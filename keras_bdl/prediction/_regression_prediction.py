"""Predictive mean and variance of real targets."""

import warnings
from typing import Any

import numpy as np

from keras_bdl._aliases import ArrayLike
from keras_bdl.prediction._prediction import Prediction


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
            observations is then unknown, (4) equals (3), and `variance` and
            `stddev` warn about the missing part.
        sample_variances: Every `v_s`, broadcastable to `samples`. Defaults
            to `None`, zero.
        samples: Every `m_s`, samples on the first axis. Defaults to `None`.

    Attributes:
        noise_is_known: Whether (2) was given. The losses of
            `keras_bdl.likelihoods`, the Poisson loss and the arguments
            `noise_stddev` and `moments` of `keras_bdl.predict` give (2).

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
        self.noise_is_known = variance_within is not None
        self._warned = self.noise_is_known
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
            variance_within=scale**2 * self.variance_within
            if self.noise_is_known
            else None,
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
        self._warn_of_unknown_noise("variance")
        return self.known_variance

    @property
    def stddev(self) -> np.ndarray:
        """Square root of (4)."""
        self._warn_of_unknown_noise("stddev")
        return np.sqrt(self.known_variance)

    @property
    def known_variance(self) -> np.ndarray:
        """The part of (4) that is known, without a warning."""
        return self.variance_within + self.variance_between

    def _warn_of_unknown_noise(self, name):
        if self._warned:
            return
        self._warned = True
        warnings.warn(
            f"`{name}` leaves out the noise of the targets, because the loss "
            "of the model does not say how large the noise is. Pass "
            "`noise_stddev` to `keras_bdl.predict`, or compile the model with "
            "`keras_bdl.likelihoods.Gaussian`. Received: a prediction with "
            "unknown noise",
            stacklevel=3,
        )
