"""Losses of regressions that are likelihoods, and outputs that fit them.

Cross-entropies of Keras are the likelihoods of classifications. What judges a
prediction without training on it is in `keras_bdl.metrics`.
"""

from keras_bdl.likelihoods.gaussian import Gaussian
from keras_bdl.likelihoods.learned_stddev import LearnedStddev
from keras_bdl.likelihoods.mean_and_stddev import mean_and_stddev

__all__ = ["Gaussian", "LearnedStddev", "mean_and_stddev"]
