from keras_bdl.models.convert import convert
from keras_bdl.models.model import Model
from keras_bdl.models.sequential import Sequential

__all__ = ["Model", "Sequential", "convert"]
