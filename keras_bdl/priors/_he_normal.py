"""Gaussian prior with the scale of He initialization."""

import math
from collections.abc import Callable
from collections.abc import Sequence
from typing import Any

import keras

from keras_bdl._aliases import ArrayLike
from keras_bdl._arguments import check_number
from keras_bdl.distributions._weight_distribution import WeightDistribution
from keras_bdl.priors._groups import group_length
from keras_bdl.priors._normal import Normal
from keras_bdl.priors._prior import Prior


@keras.saving.register_keras_serializable(package="keras_bdl")
class HeNormal(Prior):
    """Independent Gaussian weights with variance `gain / fan_in`.

        w ~ N(0, gain / fan_in)                                           (1)

    `fan_in` is the number of weights that lead to one output feature: the
    product of the sizes of all axes of the variable but the last, as in Keras
    for `Dense` and convolutional kernels. The outputs of a layer then have
    about the same variance as the inputs, for layers of any size. If an
    `EinsumDense` kernel has several output axes, all output axes but the last
    count as inputs.

    Variables of rank 0 and 1, such as biases and the scales of a
    normalization, have no inputs. Their prior is `N(0, bias_stddev^2)`.

    Args:
        gain: Gain in (1). `2.0` suits ReLU, `1.0` SELU and linear layers.
            Defaults to `2.0`.
        bias_stddev: Standard deviation of the variables without inputs.
            Defaults to `1.0`.

    Example:

    ```python
    optimizer = keras_bdl.ATMC(prior=keras_bdl.priors.HeNormal())
    ```

    Reference:
        - [He et al., 2015](https://arxiv.org/abs/1502.01852), eq. 10
    """

    def __init__(self, gain: float = 2.0, bias_stddev: float = 1.0, **kwargs):
        super().__init__(**kwargs)
        self.gain = float(check_number("gain", gain, above=0.0))
        check_number("bias_stddev", bias_stddev, above=0.0)
        self.bias_stddev = float(bias_stddev)

    def of_shape(self, shape: Sequence[int]) -> Normal:
        """Returns the `Normal` prior of a variable of a given shape.

        Args:
            shape: Shape of the variable.
        """
        has_inputs = len(shape) > 1
        return Normal(
            math.sqrt(self.gain / group_length(shape))  # (1)
            if has_inputs
            else self.bias_stddev,
            dataset_size=self.dataset_size.given,
        )

    def log_prob(self, x: ArrayLike) -> ArrayLike:
        """Returns the log density of each weight."""
        return self.of_shape(x.shape).log_prob(x)

    def expected_log_prob(
        self, q: WeightDistribution, noise: Callable[[], ArrayLike]
    ) -> ArrayLike | None:
        """Returns the expected `log_prob` of weights with distribution q."""
        return self.of_shape(q.mean.shape).expected_log_prob(q, noise)

    def sample(self, shape: Sequence[int], seed: Any = None) -> ArrayLike:
        """Returns one draw of a variable."""
        return self.of_shape(shape).sample(shape, seed)

    def get_config(self):
        """Returns all arguments."""
        return {
            **super().get_config(),
            "gain": self.gain,
            "bias_stddev": self.bias_stddev,
        }
