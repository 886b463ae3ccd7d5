"""Models that Bayesian methods train.

`Model` and `Sequential` are those of Keras with a training step that methods
may own. `keras_bdl.conversion` makes one of any Keras model; networks to start
from are in `keras_bdl.applications`.
"""

from keras_bdl.models.cloning import mend_clone_model
from keras_bdl.models.model import Model
from keras_bdl.models.sequential import Sequential

__all__ = ["Model", "Sequential"]

mend_clone_model()
