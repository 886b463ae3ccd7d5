from keras_bdl.models import Model
from keras_bdl.models import Sequential

__all__ = ["Model", "Sequential"]
