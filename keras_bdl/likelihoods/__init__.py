"""Likelihoods of regressions as losses, and output layers for these losses.

For classification, use the cross-entropies of Keras. `keras_bdl.metrics` scores
predictions, but is not for training.
"""

from keras_bdl.likelihoods._gaussian import Gaussian
from keras_bdl.likelihoods._gaussian import LearnedStddev
from keras_bdl.likelihoods._gaussian import mean_and_stddev

__all__ = ["Gaussian", "LearnedStddev", "mean_and_stddev"]
