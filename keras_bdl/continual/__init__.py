"""Continual learning: training on one task after another.

`posterior_becomes_prior` makes the learned posterior the prior of the next
task. Priors for the first task are in `keras_bdl.priors`.
"""

from keras_bdl.continual._posterior_becomes_prior import posterior_becomes_prior

__all__ = ["posterior_becomes_prior"]
