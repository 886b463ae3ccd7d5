"""Likelihoods of regressions as losses, and the outputs that fit them.

For classification, the cross-entropies of Keras are likelihoods.
`keras_bdl.metrics` judges predictions without training on them.
"""

from keras_bdl.likelihoods.gaussian import Gaussian
from keras_bdl.likelihoods.noise_stddev import LearnedStddev
from keras_bdl.likelihoods.noise_stddev import mean_and_stddev

__all__ = ["Gaussian", "LearnedStddev", "mean_and_stddev"]
