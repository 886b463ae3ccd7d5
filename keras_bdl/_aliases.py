"""Types that the annotations of many functions share."""

from collections.abc import Callable
from typing import Any
from typing import Literal
from typing import Protocol
from typing import TypeAlias

import keras

# A hyper-parameter that may change in training: any schedule of Keras.
Schedule: TypeAlias = Callable[..., Any]
FloatOrSchedule: TypeAlias = float | Schedule

# A tensor, a variable, or anything that NumPy converts to an array.
ArrayLike: TypeAlias = Any

# Data that `fit` accepts: arrays, `(x, y)`, a `tf.data.Dataset`, a `PyDataset`.
Data: TypeAlias = Any


class Density(Protocol):
    """A prior of `keras_bdl.priors` or a distribution of another library."""

    def log_prob(self, *args: Any, **kwargs: Any) -> Any:
        """Returns the log density of weights."""

    def sample(self, *args: Any, **kwargs: Any) -> Any:
        """Returns random weights."""


# One of `keras_bdl.priors` or a distribution of TensorFlow Probability.
PriorLike: TypeAlias = Density | None

# A prior, or the one that a sampler or a network chooses itself.
PriorOrDefault: TypeAlias = PriorLike | Literal["default"]

# A loss of Keras: an object, a function or a name.
Loss: TypeAlias = keras.losses.Loss | Callable | str

# Height, width and channels of an image; height and width may be `None`.
ImageShape: TypeAlias = tuple[int | None, ...]

# An activation of Keras: its name, a function, or `None` for the identity.
Activation: TypeAlias = str | Callable | None
