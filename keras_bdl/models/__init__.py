"""Models that Bayesian methods train, and what makes them of others.

`Model` and `Sequential` are those of Keras with a training step that methods
may own; `convert` makes one of any Keras model. The layers that a conversion
puts in are in `keras_bdl.layers`, networks to start from in
`keras_bdl.applications`.
"""

from keras_bdl.models.cloning import mend_clone_model
from keras_bdl.models.convert import convert
from keras_bdl.models.model import Model
from keras_bdl.models.sequential import Sequential

__all__ = ["Model", "Sequential", "convert"]

mend_clone_model()
