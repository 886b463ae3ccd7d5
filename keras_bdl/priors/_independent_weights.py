"""Priors of independent weights: Normal, HeNormal, Laplace, ScaleMixture."""

import math
import statistics
from collections.abc import Callable
from collections.abc import Sequence
from typing import Any

import keras
from keras import ops

from keras_bdl._aliases import ArrayLike
from keras_bdl._arguments import check_number
from keras_bdl.distributions._weight_distribution import WeightDistribution
from keras_bdl.priors._prior import Prior


@keras.saving.register_keras_serializable(package="keras_bdl")
class Normal(Prior):
    """Independent Gaussian weights.

        log p = -(w - m)^2/(2 s^2) - log(s sqrt(2 pi))

    Args:
        stddev: Standard deviation s. Defaults to `1.0`.
        mean: Mean m. Defaults to `0.0`.
        dataset_size: N, the number of training examples, where this prior is a
            regularizer. Defaults to `None`: `keras_bdl.Model.fit` counts them.

    Example:

    ```python
    optimizer = keras_bdl.ATMC(prior=keras_bdl.priors.Normal(0.1))
    ```
    """

    def __init__(
        self,
        stddev: float = 1.0,
        mean: float = 0.0,
        *,
        dataset_size: int | None = None,
    ):
        super().__init__(dataset_size=dataset_size)
        self.stddev = float(check_number("stddev", stddev, above=0.0))
        self.mean = float(check_number("mean", mean))

    def log_prob(self, x: ArrayLike) -> ArrayLike:
        """Returns the log density of each weight."""
        return self._log_prob(self._squared_distance(x))

    def expected_log_prob(
        self, q: WeightDistribution, noise: Callable[[], ArrayLike]
    ) -> ArrayLike | None:
        """Returns the expected `log_prob` of weights with distribution q."""
        del noise
        return self._log_prob(self._squared_distance(q.mean) + q.variance)

    def _squared_distance(self, x: Any) -> Any:
        return ops.square(x - self.mean if self.mean else x)

    def _log_prob(self, squared_distance: Any) -> Any:
        # Few operations: a network has them for each of its tensors.
        factor = -0.5 / self.stddev**2
        constant = math.log(self.stddev) + 0.5 * math.log(2 * math.pi)
        return factor * squared_distance - constant

    def sample(self, shape: Sequence[int], seed: Any = None) -> ArrayLike:
        """Returns one draw of a variable."""
        return keras.random.normal(
            shape, self.mean, self.stddev, dtype="float32", seed=seed
        )

    def get_config(self) -> dict:
        """Returns all arguments."""
        return {
            **super().get_config(),
            "stddev": self.stddev,
            "mean": self.mean,
        }


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
        dataset_size: N, the number of training examples, where this prior is a
            regularizer. Defaults to `None`: `keras_bdl.Model.fit` counts them.

    Example:

    ```python
    optimizer = keras_bdl.ATMC(prior=keras_bdl.priors.HeNormal())
    ```

    Reference:
        - [He et al., 2015](https://arxiv.org/abs/1502.01852), eq. 10
    """

    def __init__(
        self,
        gain: float = 2.0,
        bias_stddev: float = 1.0,
        *,
        dataset_size: int | None = None,
    ):
        super().__init__(dataset_size=dataset_size)
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
            math.sqrt(self.gain / math.prod(shape[:-1]))  # (1)
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

    def get_config(self) -> dict:
        """Returns all arguments."""
        return {
            **super().get_config(),
            "gain": self.gain,
            "bias_stddev": self.bias_stddev,
        }


@keras.saving.register_keras_serializable(package="keras_bdl")
class Laplace(Prior):
    """Independent weights with Laplace distributions.

        log p = -|w - m|/b - log 2b

    This prior is not the Laplace approximation, which is
    `keras_bdl.posteriors.Laplace`.

    Args:
        scale: Scale b. Defaults to `1.0`.
        mean: Mean m. Defaults to `0.0`.
        dataset_size: N, the number of training examples, where this prior is a
            regularizer. Defaults to `None`: `keras_bdl.Model.fit` counts them.

    Example:

    ```python
    optimizer = keras_bdl.SGNHT(prior=keras_bdl.priors.Laplace(5.0))
    ```
    """

    def __init__(
        self,
        scale: float = 1.0,
        mean: float = 0.0,
        *,
        dataset_size: int | None = None,
    ):
        super().__init__(dataset_size=dataset_size)
        self.scale = float(check_number("scale", scale, above=0.0))
        self.mean = float(check_number("mean", mean))

    def log_prob(self, x: ArrayLike) -> ArrayLike:
        """Returns the log density of each weight."""
        return -ops.abs(x - self.mean) / self.scale - math.log(2 * self.scale)

    def expected_log_prob(
        self, q: WeightDistribution, noise: Callable[[], ArrayLike]
    ) -> ArrayLike | None:
        """Returns the expected `log_prob`, or `None` without a closed form."""
        del noise
        distance = q.expected_distance(self.mean)
        if distance is None:
            return None
        return -distance / self.scale - math.log(2 * self.scale)

    def sample(self, shape: Sequence[int], seed: Any = None) -> ArrayLike:
        """Returns one draw of a variable."""
        # The inverse distribution function at u + 1/2. |u| < 1/2 keeps the
        # logarithm finite.
        u = keras.random.uniform(
            shape, -0.5 + 1e-7, 0.5, dtype="float32", seed=seed
        )
        size = -ops.log1p(-2.0 * ops.abs(u))
        return self.mean + self.scale * ops.sign(u) * size

    def get_config(self) -> dict:
        """Returns all arguments."""
        return {**super().get_config(), "scale": self.scale, "mean": self.mean}


@keras.saving.register_keras_serializable(package="keras_bdl")
class ScaleMixture(Prior):
    """Independent weights from a mixture of two Gaussians around zero.

        p(w) = pi N(w; 0, s_1^2) + (1 - pi) N(w; 0, s_2^2)                (1)

    The narrow Gaussian keeps many weights near zero. The wide Gaussian lets
    the others be large.

    Args:
        stddev_1: Standard deviation s_1. Defaults to `1.0`.
        stddev_2: Standard deviation s_2. Defaults to `0.0025`.
        probability_1: Probability pi of the first Gaussian, between 0 and 1.
            Defaults to `0.5`.
        dataset_size: N, the number of training examples, where this prior is a
            regularizer. Defaults to `None`: `keras_bdl.Model.fit` counts them.

    Example:

    ```python
    prior = keras_bdl.extend.ScaleMixture(probability_1=0.25)
    layer = keras.layers.Dense(400, kernel_regularizer=prior)
    ```

    Reference:
        - [Blundell et al., 2015](https://arxiv.org/abs/1505.05424), eq. 7;
          the defaults are close to the best values of the paper
    """

    def __init__(
        self,
        stddev_1: float = 1.0,
        stddev_2: float = 0.0025,
        *,
        probability_1: float = 0.5,
        dataset_size: int | None = None,
    ):
        super().__init__(dataset_size=dataset_size)
        self.stddev_1 = float(check_number("stddev_1", stddev_1, above=0.0))
        self.stddev_2 = float(check_number("stddev_2", stddev_2, above=0.0))
        # For probability 1, use `Normal`.
        check_number("probability_1", probability_1, above=0.0, below=1.0)
        self.probability_1 = float(probability_1)

    def log_prob(self, x: ArrayLike) -> ArrayLike:
        """Returns the log density of each weight."""
        first = Normal(self.stddev_1).log_prob(x)
        second = Normal(self.stddev_2).log_prob(x)
        joint = ops.stack(
            [
                first + math.log(self.probability_1),
                second + math.log1p(-self.probability_1),
            ]
        )
        return ops.logsumexp(joint, axis=0)  # (1)

    def sample(self, shape: Sequence[int], seed: Any = None) -> ArrayLike:
        """Returns one draw of a variable."""
        # One call makes both numbers of a weight: two calls with the same
        # integer seed would return the same numbers.
        noise = keras.random.normal((2, *shape), dtype="float32", seed=seed)
        is_first = noise[0] < statistics.NormalDist().inv_cdf(
            self.probability_1
        )
        return noise[1] * ops.where(is_first, self.stddev_1, self.stddev_2)

    def get_config(self) -> dict:
        """Returns all arguments."""
        return {
            **super().get_config(),
            "stddev_1": self.stddev_1,
            "stddev_2": self.stddev_2,
            "probability_1": self.probability_1,
        }
