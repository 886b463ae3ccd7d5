"""Average of the real outputs of one batch over posterior draws."""

import numpy as np

from keras_bdl.prediction.regression_prediction import RegressionPrediction
from keras_bdl.prediction.running_moments import RunningMoments


class RegressionAverage:
    """Sums of `RegressionPrediction` over the draws, for one batch.

    Args:
        keep_samples: Whether to keep the mean and the variance of every
            draw. Defaults to `False`.
    """

    def __init__(self, keep_samples: bool = False):
        self._moments = RunningMoments()
        self._within = 0.0
        self._samples = [] if keep_samples else None
        self._variances = []

    def update(self, statistics):
        """Takes in one draw: its `mean` and perhaps its `variance`."""
        mean, variance = statistics["mean"], statistics.get("variance")
        # float64: targets may be far from 0 and their spread small.
        self._moments.update(mean.astype("float64"))
        if variance is not None:
            self._within = self._within + variance
        if self._samples is not None:
            self._samples.append(mean)
            self._variances.append(variance)

    @classmethod
    def join(cls, averages, y=None, noise_stddev=None):
        """Makes the prediction from the averages of all batches.

        Args:
            averages: A list of these, batches in order.
            y: The targets of all batches. Defaults to `None`.
            noise_stddev: Standard deviation of the noise, where the draws do
                not tell it. Defaults to `None`, unknown.
        """
        num_samples = averages[0]._moments.count
        mean = np.concatenate([a._moments.mean for a in averages])
        between = np.concatenate([a._moments.variance for a in averages])
        samples = variances = within = None
        told = np.ndim(averages[0]._within) > 0
        if told:
            within = np.concatenate([a._within for a in averages])
            within = (within / num_samples).astype("float32")
        elif noise_stddev is not None:
            within = variances = np.square(
                _broadcast_noise(noise_stddev, mean.shape)
            )
        if averages[0]._samples is not None:
            samples = _stack_draws([a._samples for a in averages])
            if told:
                variances = _stack_draws([a._variances for a in averages])
        if y is not None and y.size == mean.size:
            y = y.reshape(mean.shape)
        return RegressionPrediction(
            mean.astype("float32"),
            between.astype("float32"),
            within,
            num_samples=num_samples,
            y=y,
            samples=samples,
            sample_variances=variances,
        )


def _stack_draws(batches):
    return np.concatenate([np.stack(draws) for draws in batches], axis=1)


def _broadcast_noise(noise_stddev, shape):
    noise = np.asarray(noise_stddev, "float32")
    try:
        return np.broadcast_to(noise, shape)
    except ValueError:
        raise ValueError(
            "`noise_stddev` must be a number or an array that broadcasts to "
            f"the shape {shape} of the predicted mean. "
            f"Received: noise_stddev of shape {noise.shape}"
        ) from None
