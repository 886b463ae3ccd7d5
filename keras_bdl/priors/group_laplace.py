"""Laplace prior on the length of the vectors of weights."""

import math
from collections.abc import Sequence
from typing import Any

import keras
from keras import ops

from keras_bdl.aliases import ArrayLike
from keras_bdl.arguments import check_number
from keras_bdl.priors.groups import group_count
from keras_bdl.priors.groups import group_length
from keras_bdl.priors.groups import log_sphere_area
from keras_bdl.priors.groups import normalize
from keras_bdl.priors.groups import squared_norms
from keras_bdl.priors.prior import Prior
from keras_bdl.priors.symmetric_gamma import SymmetricGamma


@keras.saving.register_keras_serializable(package="keras_bdl")
class GroupLaplace(Prior):
    """Independent vectors of weights that are short or long as a whole.

    With `v` the `d` weights of one output feature, all entries of a variable
    that share an index of its last axis,

        p(v) = exp(-||v||/b) / Z,   Z = A_d Gamma(d) b^d                  (1)

    where `A_d` is the area of the unit sphere. The direction of `v` is
    uniform and its length has a Gamma distribution with mean `d b`. In a
    variable of rank 0 or 1 every entry is a vector of its own, with a Laplace
    distribution. `log_prob` returns one number for each vector.

    Args:
        scale: b. Defaults to `1.0`.
        dataset_size: See `Prior`. Defaults to `None`.

    Example:

    ```python
    prior = keras_bdl.priors.GroupLaplace(5.0)
    keras.layers.Conv2D(32, 3, kernel_regularizer=prior)
    ```

    Reference:
        - Heek and Kalchbrenner, [Bayesian Inference for Large Scale Image
          Classification](https://arxiv.org/abs/1908.03491), section 5
    """

    def __init__(self, scale: float = 1.0, dataset_size: int | None = None):
        super().__init__(dataset_size)
        self.scale = float(check_number("scale", scale, above=0.0))

    def of_scales(self, length: int):
        """Returns the prior of the magnitudes of vectors of a given length.

        Where a vector is `s u`, with a direction `u` and a magnitude `s` of
        either sign, (1) makes `s` a `SymmetricGamma`.

        Args:
            length: d, the number of weights in a vector.
        """
        if not (isinstance(length, int) and length >= 1):
            raise ValueError(
                "`length` must be the number of weights in a vector, an "
                f"integer from 1 on. Received: length={length!r}"
            )
        return SymmetricGamma(length, self.scale, self.dataset_size.given)

    def log_prob(self, x: ArrayLike) -> ArrayLike:
        """Returns the log density of each vector."""
        d, b = group_length(x.shape), self.scale
        constant = log_sphere_area(d) + math.lgamma(d) + d * math.log(b)
        # The root has no gradient at zero, and the bound has the gradient 0.
        norms = ops.sqrt(ops.maximum(squared_norms(x), 1e-30))
        return -norms / b - constant  # (1)

    def sample(self, shape: Sequence[int], seed: Any = None) -> ArrayLike:
        """Returns a draw of a variable of the given shape."""
        d = group_length(shape)
        noise = keras.random.normal(
            (2 * d, group_count(shape)), dtype="float32", seed=seed
        )
        # Half the square of two normal numbers is exponential, and of 2 d of
        # them Gamma(d); it depends on no direction.
        lengths = self.scale * squared_norms(noise) / 2.0
        return ops.reshape(lengths * normalize(noise[:d]), shape)

    def get_config(self):
        """Returns all arguments."""
        return {**super().get_config(), "scale": self.scale}
