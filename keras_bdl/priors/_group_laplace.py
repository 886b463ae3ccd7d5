"""Prior on the length of vectors of weights."""

import math
from collections.abc import Sequence
from typing import Any

import keras
from keras import ops

from keras_bdl._aliases import ArrayLike
from keras_bdl._arguments import check_number
from keras_bdl.priors._groups import group_count
from keras_bdl.priors._groups import group_length
from keras_bdl.priors._groups import log_sphere_area
from keras_bdl.priors._groups import normalize
from keras_bdl.priors._groups import squared_norms
from keras_bdl.priors._prior import Prior
from keras_bdl.priors._symmetric_gamma import SymmetricGamma


@keras.saving.register_keras_serializable(package="keras_bdl")
class GroupLaplace(Prior):
    """Independent vectors of weights, with density `exp(-||v||/b) / Z` each.

    A vector `v` holds the `d` weights of one output feature: all entries of a
    variable with the same index on the last axis. The density of a vector is

        p(v) = exp(-||v||/b) / Z,   Z = A_d Gamma(d) b^d                  (1)

    where `A_d` is the area of the unit sphere. The direction of `v` is
    uniform, and its length has a Gamma distribution with mean `d b`. In a
    variable of rank 0 or 1, each entry is a vector, with a Laplace
    distribution. `log_prob` returns one number for each vector.

    Args:
        scale: Scale b. Defaults to `1.0`.

    Example:

    ```python
    prior = keras_bdl.priors.GroupLaplace(5.0)
    layer = keras.layers.Conv2D(32, 3, kernel_regularizer=prior)
    ```

    Reference:
        - Heek and Kalchbrenner, [Bayesian Inference for Large Scale Image
          Classification](https://arxiv.org/abs/1908.03491), section 5
    """

    def __init__(self, scale: float = 1.0, **kwargs):
        super().__init__(**kwargs)
        self.scale = float(check_number("scale", scale, above=0.0))

    def of_scales(self, length: int) -> SymmetricGamma:
        """Returns the prior of the magnitudes of vectors.

        A vector is `s u`, with a direction `u` and a magnitude `s` of either
        sign. If the vector has the prior (1), `s` has the prior
        `SymmetricGamma`.

        Args:
            length: d, the number of weights in a vector.
        """
        check_number("length", length, at_least=1, integer=True)
        return SymmetricGamma(
            length, self.scale, dataset_size=self.dataset_size.given
        )

    def log_prob(self, x: ArrayLike) -> ArrayLike:
        """Returns the log density of each vector."""
        d, b = group_length(x.shape), self.scale
        constant = log_sphere_area(d) + math.lgamma(d) + d * math.log(b)
        # The root has an infinite gradient at zero. The bound makes the
        # gradient 0.
        norms = ops.sqrt(ops.maximum(squared_norms(x), 1e-30))
        return -norms / b - constant  # (1)

    def sample(self, shape: Sequence[int], seed: Any = None) -> ArrayLike:
        """Returns one draw of a variable."""
        d = group_length(shape)
        noise = keras.random.normal(
            (2 * d, group_count(shape)), dtype="float32", seed=seed
        )
        # Half the sum of 2 d squared normal numbers has the distribution
        # Gamma(d), and is independent of the direction.
        lengths = self.scale * squared_norms(noise) / 2.0
        return ops.reshape(lengths * normalize(noise[:d]), shape)

    def get_config(self):
        """Returns all arguments."""
        return {**super().get_config(), "scale": self.scale}
