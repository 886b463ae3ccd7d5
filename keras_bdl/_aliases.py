"""Types that the annotations of many functions share."""

from collections.abc import Callable
from typing import Any
from typing import TypeAlias

import keras

# A hyper-parameter that may change in training.
Schedule: TypeAlias = keras.optimizers.schedules.LearningRateSchedule
FloatOrSchedule: TypeAlias = float | Schedule

# A tensor, a variable, or anything that NumPy converts to an array.
ArrayLike: TypeAlias = Any

# Data that `fit` accepts: arrays, `(x, y)`, a `tf.data.Dataset`, a `PyDataset`.
Data: TypeAlias = Any

# One of `keras_bdl.priors` or a distribution of TensorFlow Probability.
PriorLike: TypeAlias = Any

# A loss of Keras: an object, a function or a name.
Loss: TypeAlias = keras.losses.Loss | Callable | str

# Height, width and channels of an image; height and width may be `None`.
ImageShape: TypeAlias = tuple[int | None, ...]

# An activation of Keras: its name, a function, or `None` for the identity.
Activation: TypeAlias = str | Callable | None
