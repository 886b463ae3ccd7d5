"""Models that Bayesian methods train.

`Model` and `Sequential` are the Keras classes with a Bayesian training step.
`keras_bdl.convert` turns any Keras model into such a model.
`keras_bdl.applications` has ready-made networks.
"""

from keras_bdl._models._model import Model
from keras_bdl._models._model import Sequential

__all__ = ["Model", "Sequential"]
