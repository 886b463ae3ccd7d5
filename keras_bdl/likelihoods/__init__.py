from keras_bdl.likelihoods.gaussian import Gaussian
from keras_bdl.likelihoods.learned_stddev import LearnedStddev
from keras_bdl.likelihoods.mean_and_stddev import mean_and_stddev

__all__ = ["Gaussian", "LearnedStddev", "mean_and_stddev"]
