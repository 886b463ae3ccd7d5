"""What the metrics of a Gaussian output have in common."""

import keras
from keras import ops


class GaussianMean(keras.metrics.Mean):
    """Weighted mean of a score of a Gaussian predictive density.

    Args:
        noise_stddev: Standard deviation of the noise, or `None` if the model's
            output holds it.
        name: Name of the metric.
        dtype: Type of the computation, `None` for `keras.config.floatx()`.
    """

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
        z = (self._align(ops.cast(y_true, self.dtype), mean) - mean) / stddev
        super().update_state(self.score(z, stddev), sample_weight)

    def score(self, z, stddev):
        """Returns the score of standardised residuals, value by value."""
        raise NotImplementedError

    def _split(self, y_pred):
        if self.noise_stddev is not None:
            return y_pred, ops.cast(self.noise_stddev, self.dtype)
        if y_pred.shape[-1] % 2:
            raise ValueError(
                "`y_pred` must hold means, then as many standard deviations, "
                "on its last axis; where the output is the mean alone, give "
                f"the noise to {type(self).__name__} as `noise_stddev`. "
                f"Received: y_pred of shape {tuple(y_pred.shape)}"
            )
        return ops.split(y_pred, 2, axis=-1)

    @staticmethod
    def _align(y_true, mean):
        """Keeps `(batch,)` and `(batch, 1)` from making `(batch, batch)`."""
        shape = tuple(mean.shape)
        if shape[-1:] == (1,) and len(y_true.shape) == len(shape) - 1:
            y_true = ops.expand_dims(y_true, -1)
        known = [
            (a, b)
            for a, b in zip(y_true.shape, shape, strict=False)
            if a is not None and b is not None
        ]
        same_rank = len(y_true.shape) == len(shape)
        if not same_rank or any(a != b for a, b in known):
            raise ValueError(
                "`y_true` must have the shape of the predicted mean, "
                f"{shape}. Received: y_true of shape {tuple(y_true.shape)}"
            )
        return y_true

    def get_config(self):
        """Returns every constructor argument."""
        return {**super().get_config(), "noise_stddev": self.noise_stddev}
