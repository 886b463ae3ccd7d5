"""A prior whose tensors are kept with the weights of a layer."""

import keras
import numpy as np

from keras_bdl.arguments import ShowsArguments
from keras_bdl.distributions.mean_field import MeanField
from keras_bdl.distributions.radial import Radial
from keras_bdl.distributions.weight_distribution import WeightDistribution

FAMILIES = {"mean_field": MeanField, "radial": Radial}


@keras.saving.register_keras_serializable(package="keras_bdl")
class StoredPrior(ShowsArguments):
    """Says that a variational layer keeps its prior in variables.

    The layer has non-trainable weights for the mean and the scale of each
    tensor, which are saved with the others; the config only says so. Layers
    whose prior is a `WeightDistribution` turn it into this. Given to a new
    layer, the prior has mean 0 and scale 1 until weights are loaded or
    `set_prior` is called.

    Args:
        family: `"mean_field"` or `"radial"`.

    Example:

    ```python
    layer = keras_bdl.layers.RadialDense(10, prior=StoredPrior("radial"))
    layer.load_own_variables(store)
    ```
    """

    def __init__(self, family: str):
        if family not in FAMILIES:
            raise ValueError(
                f"`family` must be one of {sorted(FAMILIES)}. "
                f"Received: family={family!r}"
            )
        self.family = family
        self._initial = None

    @classmethod
    def of(cls, distribution: WeightDistribution):
        """Returns the prior that starts as a given distribution."""
        names = [n for n, f in FAMILIES.items() if type(distribution) is f]
        self = cls(*names)
        self._initial = distribution
        return self

    def initial_values(self, shape):
        """Returns the mean and the scale that a new layer starts with."""
        if self._initial is None:
            return np.zeros(shape, "float32"), np.ones(shape, "float32")
        return checked_values(self._initial, shape)

    def distribution(self, mean, stddev):
        """Returns the distribution with these tensors."""
        return FAMILIES[self.family](mean, stddev)

    def get_config(self):
        """Returns all arguments."""
        return {"family": self.family}

    @classmethod
    def from_config(cls, config):
        """Returns the prior that `get_config` described."""
        return cls(**config)


def checked_values(distribution, shape):
    """Returns the arrays of a distribution that can be a prior of weights.

    Args:
        distribution: A `WeightDistribution`.
        shape: Shape of the weights.
    """
    mean = keras.ops.convert_to_numpy(distribution.mean)
    stddev = keras.ops.convert_to_numpy(distribution.stddev)
    shape = tuple(shape)
    if mean.shape != shape or stddev.shape != shape:
        raise ValueError(
            "A distribution that is the prior of weights must have their "
            f"shape, {shape}. Give each of kernel and bias its own, with "
            f"`bias_prior` or `set_prior`. Received: mean of shape "
            f"{mean.shape}, stddev of shape {stddev.shape}"
        )
    if not (np.isfinite(mean).all() and np.isfinite(stddev).all()):
        raise ValueError("A prior must be finite. Received: NaN or infinity")
    if not (stddev > 0).all():
        raise ValueError(
            "`stddev` of a prior must be positive everywhere. Where it is "
            "some fraction of the weights, give it a lower bound. "
            f"Received: smallest stddev={stddev.min()}"
        )
    return mean, stddev
