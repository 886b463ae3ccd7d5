"""A prior whose tensors are stored with the weights of a layer."""

from collections.abc import Sequence

import keras
import numpy as np

from keras_bdl._aliases import ArrayLike
from keras_bdl._arguments import ShowsArguments
from keras_bdl._arguments import check_choice
from keras_bdl.distributions._mean_field import MeanField
from keras_bdl.distributions._radial import Radial
from keras_bdl.distributions._weight_distribution import WeightDistribution

FAMILIES = {"mean_field": MeanField, "radial": Radial}


@keras.saving.register_keras_serializable(package="keras_bdl")
class StoredPrior(ShowsArguments):
    """Makes a variational layer store its prior in variables.

    The layer gets non-trainable weights for the mean and the scale of each
    prior, and saves them with its other weights. The config holds only the
    family. If the `prior` of a layer is a `WeightDistribution`, the layer
    converts this prior to a `StoredPrior` with the same values. A
    `StoredPrior` that is made from a family has mean 0 and scale 1 in a new
    layer, until weights are loaded or `set_prior` is called.

    Args:
        family: `"mean_field"` or `"radial"`.

    Example:

    ```python
    prior = keras_bdl.extend.StoredPrior("radial")
    layer = keras_bdl.layers.RadialDense(10, prior=prior)
    layer.build((None, 4))  # creates `kernel_prior_mean`
    ```
    """

    def __init__(self, family: str):
        self.family = check_choice("family", family, tuple(FAMILIES))
        self._initial: WeightDistribution | None = None

    @classmethod
    def of(cls, distribution: WeightDistribution) -> "StoredPrior":
        """Returns a prior whose initial values are those of a distribution.

        Args:
            distribution: An object of one of the families.
        """
        names = [n for n, f in FAMILIES.items() if type(distribution) is f]
        self = cls(*names)
        self._initial = distribution
        return self

    def initial_values(self, shape: Sequence[int]) -> tuple:
        """Returns the initial mean and scale of the prior in a new layer.

        Args:
            shape: Shape of the weights.
        """
        if self._initial is None:
            return np.zeros(shape, "float32"), np.ones(shape, "float32")
        return checked_values(self._initial, shape)

    def distribution(
        self, mean: ArrayLike, stddev: ArrayLike
    ) -> WeightDistribution:
        """Returns the prior as a distribution, from the tensors of a layer.

        Args:
            mean: Means of the weights.
            stddev: Scales of the noise, of the same shape.
        """
        return FAMILIES[self.family](mean, stddev)

    def get_config(self) -> dict:
        """Returns all arguments."""
        return {"family": self.family}

    @classmethod
    def from_config(cls, config: dict) -> "StoredPrior":
        """Returns the prior that `get_config` described.

        Args:
            config: The result of `get_config`.
        """
        return cls(**config)


def checked_values(distribution, shape):
    """Returns the mean and scale of a distribution, if it can be a prior.

    Otherwise, the function raises an error.

    Args:
        distribution: A `WeightDistribution`.
        shape: Shape of the weights.
    """
    mean = keras.ops.convert_to_numpy(distribution.mean)
    stddev = keras.ops.convert_to_numpy(distribution.stddev)
    shape = tuple(shape)
    if mean.shape != shape or stddev.shape != shape:
        raise ValueError(
            "A distribution that is the prior of weights must have the shape "
            f"of the weights, {shape}. Give the kernel and the bias separate "
            "priors, with `bias_prior` or `set_prior`. Received: mean of shape "
            f"{mean.shape}, stddev of shape {stddev.shape}"
        )
    if not (np.isfinite(mean).all() and np.isfinite(stddev).all()):
        raise ValueError(
            "A prior must be finite. Check the training that made it. "
            "Received: NaN or infinity"
        )
    if not (stddev > 0).all():
        raise ValueError(
            "`stddev` of a prior must be positive everywhere. If it is a "
            "fraction of the weights, give it a lower bound. "
            f"Received: smallest stddev={stddev.min()}"
        )
    return mean, stddev
