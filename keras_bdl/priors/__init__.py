"""Distributions of the weights before training.

Samplers, objectives and variational layers take a prior, and any layer takes it
as a regularizer. `keras_bdl.posteriors` has the distributions after training.
"""

from keras_bdl.priors._independent_weights import HeNormal
from keras_bdl.priors._independent_weights import Laplace
from keras_bdl.priors._independent_weights import Normal

__all__ = ["HeNormal", "Laplace", "Normal"]
