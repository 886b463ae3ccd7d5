"""What the metrics of a Gaussian output have in common."""

import keras
from keras import ops

from keras_bdl.likelihoods.targets import aligned_targets
from keras_bdl.likelihoods.targets import split_moments


class GaussianMean(keras.metrics.Mean):
    """Weighted mean of a score of a Gaussian predictive density.

    Args:
        noise_stddev: Standard deviation of the noise, or `None` if the model's
            output holds it.
        name: Name of the metric.
        dtype: Type of the computation, `None` for `keras.config.floatx()`.

    Attributes:
        reads_noise: Whether the metric takes outputs that hold standard
            deviations after the means. `keras_bdl.Model` refuses metrics
            without this attribute there.
    """

    reads_noise = True

    def __init__(self, noise_stddev: float | None, name: str, dtype):
        super().__init__(name=name, dtype=dtype)
        if noise_stddev is not None and not noise_stddev > 0:
            raise ValueError(
                "`noise_stddev` must be positive, or `None` where the last "
                "axis of the output holds means, then standard deviations. "
                f"Received: noise_stddev={noise_stddev}"
            )
        self.noise_stddev = noise_stddev

    def update_state(self, y_true, y_pred, sample_weight=None):
        """Adds the scores of a batch."""
        mean, stddev = self._split(ops.cast(y_pred, self.dtype))
        # A metric cannot raise in a compiled step: NaN is what it can show.
        stddev = ops.where(stddev > 0, stddev, float("nan"))
        z = (aligned_targets(y_true, mean) - mean) / stddev
        super().update_state(self.score(z, stddev), sample_weight)

    def score(self, z, stddev):
        """Returns the score of standardised residuals, value by value."""
        raise NotImplementedError

    def _split(self, y_pred):
        if self.noise_stddev is None:
            name = type(self).__name__
            return split_moments(y_pred, f"`{name}(noise_stddev=...)`")
        if len(y_pred.shape) == 1:
            y_pred = ops.expand_dims(y_pred, -1)
        return y_pred, ops.cast(self.noise_stddev, self.dtype)

    def get_config(self):
        """Returns every constructor argument."""
        return {**super().get_config(), "noise_stddev": self.noise_stddev}
