"""Scores of real targets under Gaussian noise."""

import math

from keras import ops

from keras_bdl.laplace.scores import Scores
from keras_bdl.random.replica_numbers import normal


class GaussianScores(Scores):
    """Scores of means, and of standard deviations if they are outputs.

    With z the target's deviation from the mean, in standard deviations,

        s = z / stddev    by the mean,                                    (1)
        s = (z^2 - 1) / stddev    by stddev                               (2)

    whose second moments are `1 / stddev^2` and `2 / stddev^2`.

    Args:
        likelihood: A `keras_bdl.likelihoods.Gaussian`.
    """

    def __init__(self, likelihood):
        self._likelihood = likelihood

    def options(self):
        """Returns what makes mean and variance of the outputs."""
        return {"moments": self._likelihood.moments}

    def averaged(self, shape):
        """Returns all axes but that of the targets, which is summed over."""
        return shape[:-1]

    def component(self, outputs, mask):
        """Returns the root of the Fisher information of an entry."""
        stddev = self._stddev(outputs)
        if self._is_known:
            return mask / stddev
        return mask * ops.concatenate(
            [1.0 / stddev, math.sqrt(2.0) / stddev], axis=-1
        )

    def draw(self, outputs, seed):
        """Returns the scores of targets."""
        stddev = self._stddev(outputs)
        z = ops.cast(normal(ops.shape(stddev), seed), stddev.dtype)
        if self._is_known:
            return z / stddev  # (1)
        return ops.concatenate(
            [z / stddev, (ops.square(z) - 1.0) / stddev], axis=-1
        )  # (1), (2)

    @property
    def _is_known(self):
        return self._likelihood.noise_stddev is not None

    def _stddev(self, outputs):
        return ops.sqrt(self._likelihood.moments(outputs)[1])
