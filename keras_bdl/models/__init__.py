"""Models that Bayesian methods train.

`Model` and `Sequential` are the Keras classes with a Bayesian training step.
`keras_bdl.conversion` turns any Keras model into such a model.
`keras_bdl.applications` has ready-made networks.
"""

from keras_bdl.models.cloning import mend_clone_model
from keras_bdl.models.model import Model
from keras_bdl.models.sequential import Sequential

__all__ = ["Model", "Sequential"]

mend_clone_model()
